"""Helpers for tests that run an app as its users do."""

import subprocess
import sys
import unittest


class AppTest(unittest.TestCase):
    program = ""

    def run_app(self, *arguments, **options):
        return subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, **options)

    def check_error(self, code, message, *arguments):
        """The app fails with this code and one line on stderr that holds `message`, and prints no result."""
        result = self.run_app(*arguments)
        with self.subTest(arguments=arguments):
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual(result.stdout, "")
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(message, result.stderr)


def main(test_case):
    test_case.program = sys.argv.pop(1)
    unittest.main()
