"""Links prenorm into another project, in every way that the README offers.

    package.py CMAKE SOURCE_DIR BUILD_DIR TORCH_PREFIX
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CMAKE, SOURCE, BUILD, TORCH = sys.argv[1:5]
CONSUMER = pathlib.Path(SOURCE) / "tests" / "package"


def run(*command, **options):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, **options)


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.prefix = cls.folder / "prefix"
        installed = run(CMAKE, "--install", BUILD, "--prefix", cls.prefix)
        assert installed.returncode == 0, installed.stderr

    def configure(self, way, *arguments, source=CONSUMER, **options):
        self.build = self.folder / way
        return run(CMAKE, "-S", source, "-B", self.build, "-G", "Ninja", f"-DPRENORM_FROM={way}",
                   f"-DPRENORM_SOURCE={SOURCE}", *arguments, **options)

    def check_ok(self, result):
        self.assertEqual(result.returncode, 0, result.stdout[-3000:] + result.stderr[-3000:])
        return result.stdout

    def check_consumer(self, way, *arguments):
        self.check_ok(self.configure(way, *arguments))
        self.check_ok(run(CMAKE, "--build", self.build))
        self.assertRegex(self.check_ok(run(self.build / "consumer")), "linked: ")
        if way == "package":
            self.check_ok(run(self.build / "readme"))

    def refused(self, result):
        """What a failed configuration says, as one line."""
        self.assertNotEqual(result.returncode, 0)
        return " ".join(result.stderr.split())

    def test_find_package(self):
        self.check_consumer("package", f"-DCMAKE_PREFIX_PATH={self.prefix};{TORCH}")

    def test_libtorch_is_found_wherever_it_is_named(self):
        for i, where in enumerate((f"-DCMAKE_PREFIX_PATH={TORCH}/share/cmake", f"-DTorch_ROOT={TORCH}",
                                   f"-DTorch_DIR={TORCH}/share/cmake/Torch")):
            self.check_ok(self.configure(f"where{i}", "-DPRENORM_TESTS=OFF", where, source=SOURCE))

    def test_an_optional_component_is_not_found_without_libtorch(self):
        project = self.folder / "optional"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(optional CXX)\n"
            "find_package(prenorm REQUIRED COMPONENTS params OPTIONAL_COMPONENTS torch)\n"
            "find_package(prenorm QUIET)\n"
            'message(STATUS "params ${prenorm_params_FOUND}, torch ${prenorm_torch_FOUND}, all ${prenorm_FOUND}")\n')
        said = self.check_ok(run(CMAKE, "-G", "Ninja", "-S", project, "-B", project / "build",
                                 f"-DCMAKE_PREFIX_PATH={self.prefix}"))
        self.assertRegex(said, "params TRUE, torch (FALSE|), all (FALSE|0)")

    def test_find_package_without_libtorch(self):
        self.check_consumer("params", f"-DCMAKE_PREFIX_PATH={self.prefix}")

    def test_add_subdirectory(self):
        self.check_consumer("subdirectory", f"-DCMAKE_PREFIX_PATH={TORCH}")

    def test_fetch_content(self):
        self.check_consumer("fetchcontent", f"-DCMAKE_PREFIX_PATH={TORCH}",
                            f"-DFETCHCONTENT_SOURCE_DIR_PRENORM={SOURCE}", "-DFETCHCONTENT_FULLY_DISCONNECTED=ON")

    def test_a_project_around_it_has_the_same_dependencies(self):
        """Targets of the names that nlohmann_json and zlib give themselves, made before and after ours."""
        release = self.folder / "json"  # what would be fetched
        (release / "include").mkdir(parents=True)
        others = ("add_library(nlohmann_json INTERFACE)\n"
                  "target_include_directories(nlohmann_json INTERFACE /usr/include)\n"
                  "add_library(nlohmann_json::nlohmann_json ALIAS nlohmann_json)\n"
                  "add_library(zlib INTERFACE)\nadd_library(ZLIB::ZLIB ALIAS zlib)\n")
        ours = f"set(PRENORM_TORCH OFF)\nadd_subdirectory({SOURCE} prenorm)\n"
        for name, lists in (("before", others + ours), ("after", ours + others)):
            project = self.folder / name
            project.mkdir()
            (project / "main.cpp").write_text("int main() {}\n")
            (project / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.22)\nproject(around CXX)\n" + lists +
                "add_executable(around main.cpp)\ntarget_link_libraries(around prenorm::params nlohmann_json::nlohmann_json)\n")
            for installed in (True, False):
                without = () if installed else ("-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON",
                                                f"-DFETCHCONTENT_SOURCE_DIR_PRENORM_JSON={release}")
                self.check_ok(self.configure(f"{name}_{installed}", *without, source=project))

    def test_groups_stay_when_the_caller_wants_unity_builds(self):
        """What is compiled together is ours to say: not everything can be."""
        def units(way, *arguments):
            self.check_ok(self.configure(way, f"-DCMAKE_PREFIX_PATH={TORCH}", *arguments, source=SOURCE))
            return {str(path.relative_to(self.build)): path.read_text().replace(way, "")
                    for path in (self.build / "modules").rglob("Unity/*")}

        usual = units("usual")
        self.assertGreater(len(usual), 4)
        self.assertEqual(units("unity", "-DCMAKE_UNITY_BUILD=ON"), usual)
        self.assertEqual(units("whole", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0"), usual)

    def test_the_installed_apps_run(self):
        self.assertIn("Usage: train", self.check_ok(run(self.prefix / "bin" / "prenorm-train", "--help")))

    def test_installed_files_name_no_place_of_the_build_machine(self):
        places = [SOURCE.encode(), TORCH.encode(), b"libtorch.", b"libtorch_", b"libc10."]
        for path in self.prefix.rglob("*"):
            if path.is_file() and path.parent.name != "bin":  # a program knows where its libraries are
                text = path.read_bytes()
                for place in places:
                    self.assertFalse(place in text, f"{path} names {place.decode()}")

    def test_public_headers_include_only_torch_and_std(self):
        for header in (self.prefix / "include" / "prenorm").rglob("*.h"):
            for line in header.read_text().splitlines():
                if line.startswith("#include"):
                    self.assertRegex(line, r'<torch/torch\.h>|<[a-z_]+>|"prenorm/[a-z_/]+\.h"', header)

    def test_no_libtorch_says_what_to_set(self):
        for way, source, prefix in (("package", CONSUMER, self.prefix), ("none", SOURCE, "/nonexistent")):
            said = self.refused(self.configure(way + "0", "-DPRENORM_FROM=package", f"-DCMAKE_PREFIX_PATH={prefix}",
                                               source=source))
            self.assertIn("LibTorch was not found", said)
            self.assertIn("-DCMAKE_PREFIX_PATH=/absolute/path/to/libtorch", said)

    def test_a_relative_prefix_is_named(self):
        said = self.refused(self.configure("relative", "-DCMAKE_PREFIX_PATH=some/libtorch", source=SOURCE))
        self.assertIn("CMAKE_PREFIX_PATH holds the relative path 'some/libtorch': give an absolute one", said)

    @unittest.skipIf(os.path.exists("/usr/local/cuda/bin/nvcc"), "this machine has nvcc where it is always looked for")
    def test_a_cuda_libtorch_without_nvcc_says_both_ways_out(self):
        fake = self.folder / "cuda"
        (fake / "share/cmake/Torch").mkdir(parents=True)
        (fake / "lib").mkdir()
        (fake / "lib/libtorch_cuda.so").touch()
        (fake / "share/cmake/Torch/TorchConfig.cmake").write_text('message(FATAL_ERROR "stopped in the middle")')
        environment = {key: value for key, value in os.environ.items() if "CUDA" not in key}
        ninja = run("sh", "-c", "command -v ninja").stdout.strip()
        said = self.refused(self.configure("nvcc", f"-DCMAKE_PREFIX_PATH={fake}", f"-DCMAKE_MAKE_PROGRAM={ninja}",
                                           "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", source=SOURCE,
                                           env=environment | {"PATH": "/usr/bin:/bin"}))
        self.assertIn("is a CUDA build, and its CMake files need nvcc", said)
        self.assertIn("use a CPU build", said)
        self.assertIn("install the CUDA toolkit", said)

    def test_an_unknown_component_and_a_newer_version_are_refused(self):
        for demand in ("prenorm REQUIRED COMPONENTS decoder", "prenorm 9.0 REQUIRED"):
            project = self.folder / "demand"
            project.mkdir(exist_ok=True)
            (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(demand CXX)\n"
                                                    f"find_package({demand})\n")
            said = self.refused(run(CMAKE, "-G", "Ninja", "-S", project, "-B", project / "build",
                                    f"-DCMAKE_PREFIX_PATH={self.prefix};{TORCH}"))
            self.assertIn("prenorm", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
