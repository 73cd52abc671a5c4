"""Helpers for tests that run an app as its users do."""

import concurrent.futures
import os
import subprocess
import sys
import unittest


def side_by_side(function, *arguments):
    """map() whose calls run at the same time, one per core: for programs, of which each computes on its own."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, *arguments))


class AppTest(unittest.TestCase):
    program = ""

    def run_app(self, *arguments, **options):
        return subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, **options)

    def run_apps(self, calls):
        """The results of several calls, given as tuples of arguments, that have nothing to do with each other."""
        return side_by_side(lambda arguments: self.run_app(*arguments), calls)

    def check_error(self, code, message, *arguments):
        """The app fails with this code and one line on stderr that holds `message`, and prints no result."""
        self.check_errors((code, message, arguments))

    def check_errors(self, *cases):
        """check_error for each (code, message, arguments); the calls run side by side."""
        results = self.run_apps([arguments for _, _, arguments in cases])
        for (code, message, arguments), result in zip(cases, results, strict=True):
            with self.subTest(arguments=arguments):
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertEqual(result.stdout, "")
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
                self.assertIn(message, result.stderr)


def main(test_case):
    # One thread where a program is not told how many, and threads that wait asleep: spinning ones take the cores from
    # whatever else runs.
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    test_case.program = sys.argv.pop(1)
    unittest.main()
