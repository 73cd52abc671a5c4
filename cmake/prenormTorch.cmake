# prenorm_find_torch(problem): finds LibTorch for the library and for the programs that link it, or sets `problem` to what
# the user can do about it. TorchConfig.cmake stops in the middle of a CUDA LibTorch without nvcc, so look before it runs.
function(prenorm_find_torch problem)
  set(${problem} "" PARENT_SCOPE)
  if(TARGET torch)
    return()
  endif()
  find_file(config TorchConfig.cmake PATHS "${Torch_DIR}" "$ENV{Torch_DIR}" "${Torch_ROOT}" "$ENV{Torch_ROOT}"
            PATH_SUFFIXES share/cmake/Torch Torch NO_CACHE)
  if(NOT config)
    set(hint "")
    foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
      if(NOT IS_ABSOLUTE "${prefix}")
        string(APPEND hint "\nCMAKE_PREFIX_PATH holds the relative path '${prefix}': give an absolute one.")
      endif()
    endforeach()
    set(${problem} "LibTorch was not found.${hint}
Say where it is: -DCMAKE_PREFIX_PATH=/absolute/path/to/libtorch, or, for the one inside a Python torch,
  -DCMAKE_PREFIX_PATH=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')
Without LibTorch only the component 'params' can be had (-DPRENORM_TORCH=OFF builds it alone)." PARENT_SCOPE)
    return()
  endif()

  get_filename_component(prefix "${config}/../../../.." ABSOLUTE)
  file(GLOB cuda "${prefix}/lib/*torch_cuda.*")
  if(cuda AND NOT CMAKE_CUDA_COMPILER)
    find_program(nvcc nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH "${CUDAToolkit_ROOT}" ENV CUDAToolkit_ROOT
                 PATHS /usr/local/cuda PATH_SUFFIXES bin NO_CACHE)
    if(NOT nvcc)
      set(${problem} "The LibTorch at ${prefix} is a CUDA build, and its CMake files need nvcc, which is not here.
Two ways out: use a CPU build (pip install torch --index-url https://download.pytorch.org/whl/cpu, or the CPU LibTorch
archive), or install the CUDA toolkit and put nvcc on PATH (or set CUDAToolkit_ROOT)." PARENT_SCOPE)
      return()
    endif()
    set(CMAKE_CUDA_COMPILER "${nvcc}")  # CMake itself looks for it in fewer places
  endif()

  get_filename_component(Torch_DIR "${config}" DIRECTORY)
  find_package(Torch 2.7 REQUIRED)
  set(TORCH_INSTALL_PREFIX "${TORCH_INSTALL_PREFIX}" PARENT_SCOPE)
  if(MSVC)
    message(WARNING "Windows is untested; a Debug program needs the debug LibTorch and crashes with the release one.")
  endif()
endfunction()
