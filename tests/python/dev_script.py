"""What ./dev says when it cannot go on: dev_script.py SOURCE_DIR"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = sys.argv.pop(1)


class Dev(unittest.TestCase):
    def check_stops(self, message, *arguments, **environment):
        result = subprocess.run([f"{SOURCE}/dev", *arguments], capture_output=True, text=True,
                                env=os.environ | environment)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn(message, result.stderr)

    def bare_path(self, **programs):
        """A PATH with the base system's tools, without compilers, and with these scripts."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for tool in ("bash", "cat", "dirname", "env", "grep", "head", "sed", "sort"):
            os.symlink(shutil.which(tool), pathlib.Path(folder.name) / tool)
        for name, script in programs.items():
            path = pathlib.Path(folder.name) / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        return folder.name

    def test_help_is_the_default(self):
        for arguments in ((), ("help",), ("--help",)):
            said = subprocess.run([f"{SOURCE}/dev", *arguments], capture_output=True, text=True, check=True).stdout
            for command in ("train", "predict", "params", "test", "build", "setup", "format"):
                self.assertIn(f"\n  {command} ", said)

    def test_wrong_words_are_named(self):
        self.check_stops("unknown command 'tset'", "tset")
        self.check_stops("there is no preset 'fast'", "build", "fast")
        self.check_stops("there is no test 'usan'", "test", "usan")
        self.check_stops("format takes --check or nothing, not '--chekc'", "format", "--chekc")

    def test_a_relative_libtorch_is_refused(self):
        self.check_stops("LIBTORCH is 'some/libtorch': give an absolute path", "setup", LIBTORCH="some/libtorch")

    def test_without_apt_or_root_it_says_what_to_install(self):
        self.check_stops("please install these packages (by their Debian names): cmake ninja-build g++", "setup",
                         PATH=self.bare_path(), CXX="g++")
        self.check_stops("please install, as root: apt-get install cmake ninja-build g++", "setup",
                         PATH=self.bare_path(apt_get="exit 1", id="echo 1000"), CXX="g++")


if __name__ == "__main__":
    unittest.main()
