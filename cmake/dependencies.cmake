# The dependencies, from the system where it has them, else from their releases.
include(FetchContent)
if(POLICY CMP0135)
  cmake_policy(SET CMP0135 NEW)  # what is fetched is as new as its archive was unpacked
endif()

function(prenorm_dependency name url)
  find_package(${name} CONFIG QUIET)
  if(NOT ${name}_FOUND)
    message(STATUS "${name} is not installed here: fetching ${url}")
    FetchContent_Declare(${name} URL ${url})
    FetchContent_MakeAvailable(${name})
    # Our warnings are for our own headers.
    foreach(target IN LISTS ARGN)
      get_target_property(includes ${target} INTERFACE_INCLUDE_DIRECTORIES)
      set_property(TARGET ${target} APPEND PROPERTY INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${includes})
    endforeach()
  endif()
endfunction()

prenorm_dependency(nlohmann_json https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
                   nlohmann_json)

include("${CMAKE_CURRENT_LIST_DIR}/prenormZip.cmake")
set(PRENORM_SYSTEM_MINIZIP FALSE)
if(TARGET prenorm::minizip)
  set(PRENORM_SYSTEM_MINIZIP TRUE)
else()
  set(url https://github.com/madler/zlib/releases/download/v1.3.1/zlib-1.3.1.tar.gz)
  message(STATUS "minizip and zlib are not installed here: fetching ${url}")
  FetchContent_Declare(zlib URL ${url} SOURCE_SUBDIR none)  # its own build knows no minizip and installs itself
  FetchContent_MakeAvailable(zlib)
  enable_language(C)
  file(GLOB sources "${zlib_SOURCE_DIR}/*.c")
  add_library(prenorm_zip OBJECT ${sources} "${zlib_SOURCE_DIR}/contrib/minizip/ioapi.c"
              "${zlib_SOURCE_DIR}/contrib/minizip/unzip.c" "${zlib_SOURCE_DIR}/contrib/minizip/zip.c")
  target_compile_definitions(prenorm_zip PRIVATE Z_HAVE_UNISTD_H)
  set_target_properties(prenorm_zip PROPERTIES POSITION_INDEPENDENT_CODE ON COMPILE_WARNING_AS_ERROR OFF)
  target_include_directories(prenorm_zip SYSTEM PUBLIC "${zlib_SOURCE_DIR}" "${zlib_SOURCE_DIR}/contrib")
endif()

if(PRENORM_APPS)
  prenorm_dependency(CLI11 https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz CLI11)
endif()
if(PRENORM_TESTS)
  prenorm_dependency(Catch2 https://github.com/catchorg/Catch2/archive/refs/tags/v3.7.1.tar.gz)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()
