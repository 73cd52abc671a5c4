# Finds minizip (the zip reader and writer that comes with zlib) for the library and for the programs that link it.
if(NOT TARGET prenorm::minizip)
  find_path(PRENORM_MINIZIP_INCLUDE minizip/unzip.h)
  find_library(PRENORM_MINIZIP_LIBRARY minizip)
  find_package(ZLIB QUIET)
  mark_as_advanced(PRENORM_MINIZIP_INCLUDE PRENORM_MINIZIP_LIBRARY)
  if(PRENORM_MINIZIP_INCLUDE AND PRENORM_MINIZIP_LIBRARY AND ZLIB_FOUND)
    add_library(prenorm::minizip UNKNOWN IMPORTED)
    set_target_properties(prenorm::minizip PROPERTIES
      IMPORTED_LOCATION "${PRENORM_MINIZIP_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${PRENORM_MINIZIP_INCLUDE}"
      INTERFACE_LINK_LIBRARIES ZLIB::ZLIB)
  endif()
endif()
