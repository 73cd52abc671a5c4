# Finds minizip (the zip reader and writer that comes with zlib) for the library and for the programs that link it. Zlib is
# not found as ZLIB::ZLIB, a name that a project around ours may want for a zlib of its own.
if(NOT TARGET prenorm::minizip)
  find_path(PRENORM_MINIZIP_INCLUDE minizip/unzip.h)
  find_path(PRENORM_ZLIB_INCLUDE zlib.h)
  find_library(PRENORM_MINIZIP_LIBRARY minizip)
  find_library(PRENORM_ZLIB_LIBRARY z)
  mark_as_advanced(PRENORM_MINIZIP_INCLUDE PRENORM_ZLIB_INCLUDE PRENORM_MINIZIP_LIBRARY PRENORM_ZLIB_LIBRARY)
  if(PRENORM_MINIZIP_INCLUDE AND PRENORM_ZLIB_INCLUDE AND PRENORM_MINIZIP_LIBRARY AND PRENORM_ZLIB_LIBRARY)
    add_library(prenorm::minizip UNKNOWN IMPORTED)
    set_target_properties(prenorm::minizip PROPERTIES
      IMPORTED_LOCATION "${PRENORM_MINIZIP_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${PRENORM_MINIZIP_INCLUDE};${PRENORM_ZLIB_INCLUDE}"
      INTERFACE_LINK_LIBRARIES "${PRENORM_ZLIB_LIBRARY}")
  endif()
endif()
