# LibTorch's headers take longer to compile than anything of ours, so sources are compiled in groups.
set(PRENORM_APART "" CACHE STRING "Sources, named as in their CMakeLists.txt, that are compiled by themselves: those being worked on")

# prenorm_group(target size): compiles the target's sources, in their order, `size` at a time; 0: all at once.
function(prenorm_group target size)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE ${size})
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS PRENORM_APART)
    if(source IN_LIST sources)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
