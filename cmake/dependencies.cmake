# The dependencies, from the project around ours or the system where these have them, else from their releases.
include(FetchContent)
if(POLICY CMP0135)
  cmake_policy(SET CMP0135 NEW)  # what is fetched is as new as its archive was unpacked
endif()

include("${CMAKE_CURRENT_LIST_DIR}/prenormZip.cmake")
set(PRENORM_SYSTEM_MINIZIP FALSE)
if(TARGET prenorm::minizip)
  set(PRENORM_SYSTEM_MINIZIP TRUE)
else()
  set(url https://github.com/madler/zlib/releases/download/v1.3.1/zlib-1.3.1.tar.gz)
  message(STATUS "minizip and zlib are not installed here: fetching ${url}")
  FetchContent_Declare(prenorm_zlib URL ${url} SOURCE_SUBDIR none)  # its own build knows no minizip and installs itself
  FetchContent_MakeAvailable(prenorm_zlib)
  enable_language(C)
  file(GLOB sources "${prenorm_zlib_SOURCE_DIR}/*.c")
  add_library(prenorm_zip OBJECT ${sources} "${prenorm_zlib_SOURCE_DIR}/contrib/minizip/ioapi.c"
              "${prenorm_zlib_SOURCE_DIR}/contrib/minizip/unzip.c" "${prenorm_zlib_SOURCE_DIR}/contrib/minizip/zip.c")
  target_compile_definitions(prenorm_zip PRIVATE Z_HAVE_UNISTD_H)
  set_target_properties(prenorm_zip PROPERTIES POSITION_INDEPENDENT_CODE ON COMPILE_WARNING_AS_ERROR OFF
                        UNITY_BUILD OFF)
  target_include_directories(prenorm_zip SYSTEM PUBLIC "${prenorm_zlib_SOURCE_DIR}" "${prenorm_zlib_SOURCE_DIR}/contrib")
endif()

# What our libraries link with: targets found in a subdirectory are invisible to its parent, which is about to do so too.
get_property(found DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(target IN LISTS found)
  set_property(TARGET ${target} PROPERTY IMPORTED_GLOBAL TRUE)
endforeach()

# prenorm_headers(name package url): prenorm_<name>, the headers of a library that has nothing else. A target of the library's
# own name is used, but neither made nor kept: the project around ours may add the library too, before or after.
function(prenorm_headers name package url)
  if(NOT TARGET ${package}::${package})
    find_package(${package} CONFIG QUIET)
  endif()
  if(TARGET ${package}::${package})
    get_target_property(headers ${package}::${package} INTERFACE_INCLUDE_DIRECTORIES)
  else()
    message(STATUS "${package} is not installed here: fetching ${url}")
    FetchContent_Declare(prenorm_${name} URL ${url} SOURCE_SUBDIR none)
    FetchContent_MakeAvailable(prenorm_${name})
    set(headers "${prenorm_${name}_SOURCE_DIR}/include")
  endif()
  add_library(prenorm_${name} INTERFACE)
  target_include_directories(prenorm_${name} SYSTEM INTERFACE ${headers})
endfunction()

prenorm_headers(json nlohmann_json https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz)
if(PRENORM_APPS)
  prenorm_headers(cli CLI11 https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz)
endif()

if(PRENORM_TESTS)
  if(NOT TARGET Catch2::Catch2)
    find_package(Catch2 CONFIG QUIET)
  endif()
  if(NOT TARGET Catch2::Catch2)
    set(url https://github.com/catchorg/Catch2/archive/refs/tags/v3.7.1.tar.gz)
    message(STATUS "Catch2 is not installed here: fetching ${url}")
    FetchContent_Declare(Catch2 URL ${url})
    FetchContent_MakeAvailable(Catch2)
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()
