# What our own targets compile with; never exported.
add_library(prenorm_warnings INTERFACE)
if(NOT MSVC)
  target_compile_options(prenorm_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow)
  # Error messages and assertions carry __FILE__: keep the paths of the build machine out of the library.
  target_compile_options(prenorm_warnings INTERFACE "-ffile-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=")
  if(TORCH_INSTALL_PREFIX)
    target_compile_options(prenorm_warnings INTERFACE "-ffile-prefix-map=${TORCH_INSTALL_PREFIX}/=")
  endif()
endif()
