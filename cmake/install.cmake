# One package, two components: params below (no LibTorch), torch above.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/prenorm")

install(DIRECTORY modules/prenorm DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h"
        PATTERN "tensor_file" EXCLUDE PATTERN "json.h" EXCLUDE)
# What this room shows; its parsers are its own.
install(FILES modules/prenorm/tensor_file/tensor_file.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/prenorm/tensor_file")
configure_package_config_file(cmake/prenormConfig.cmake.in prenormConfig.cmake INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(prenormConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/prenormConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/prenormConfigVersion.cmake"
        cmake/prenormTorch.cmake cmake/prenormZip.cmake DESTINATION "${package_dir}")

install(TARGETS prenorm_params EXPORT prenormParamsTargets)
install(EXPORT prenormParamsTargets NAMESPACE prenorm:: DESTINATION "${package_dir}")
if(PRENORM_TORCH)
  install(TARGETS prenorm EXPORT prenormTorchTargets)
  install(EXPORT prenormTorchTargets NAMESPACE prenorm:: DESTINATION "${package_dir}")
endif()
if(PRENORM_APPS)
  install(TARGETS ${prenorm_apps})
  install(FILES apps/compare.py apps/lesson.py apps/plot.py DESTINATION "${CMAKE_INSTALL_DATADIR}/prenorm")
endif()
