"""Data of their own: training on lines of text, and answering lines: text_app.py TRAIN_PROGRAM PREDICT_PROGRAM"""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

import app
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
import lesson

torch.set_num_threads(1)
PREDICT = ""
SMALL = ("--threads", 1, "--d-model", 32, "--heads", 4, "--layers", 1)


class Text(app.AppTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_folder = self.folder / "run"

    def write(self, name, text):
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return self.folder / name

    def train(self, train, valid, *arguments):
        result = self.run_app("--train", self.write("train.txt", train), "--valid", self.write("valid.txt", valid),
                              "--out", self.run_folder, *SMALL, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def predict(self, *arguments, code=0, **options):
        result = subprocess.run([PREDICT, *map(str, arguments)], capture_output=True, text=True, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_words_and_their_tags(self):
        """Each word has its own answer, except the one after "not", which has the other: the model has to look around."""
        draw = random.Random(1)
        tags = {"big": "A", "small": "B", "red": "A", "blue": "B", "not": "N"}

        def line():
            words = [draw.choice(list(tags)) for _ in range(draw.randint(2, 8))]
            answers = [tags[word] if i == 0 or words[i - 1] != "not" or word == "not" else {"A": "B",
                                                                                            "B": "A"}[tags[word]]
                       for i, word in enumerate(words)]
            return " ".join(words) + "\t" + " ".join(answers) + "\n"

        result = self.train("".join(line() for _ in range(800)), "".join(line() for _ in range(200)), "--steps", 300)
        self.assertRegex(result.stdout, r"valid.txt: (100|9\d)[.\d]* % of 200 unseen sequences exact")
        self.assertRegex(result.stderr,
                         r"train.txt: 800 examples of up to 8 tokens, 6 different ones, 3 answers, one for each token")
        answers = self.predict(self.run_folder, input="not big not small\nred blue\n").stdout
        self.assertEqual(answers, "N B N A\nA B\n")

    def test_characters_and_a_label(self):
        lines = [(f"{a}{b}é{c}",
                  "früh" if a < c else "spät am Abend") for a in "abcdef" for b in "xyz" for c in "ghaijk" if a != c]
        text = "".join(f"{word}\t{label}\n" for word, label in lines)
        result = self.train(text, text, "--chars", "--answers", "sequence", "--steps", 250)
        self.assertIn(f" % of {len(lines)} training sequences exact", result.stdout)
        vocabulary = json.loads((self.run_folder / "vocabulary.json").read_text())
        self.assertEqual((vocabulary["split"], vocabulary["per"], vocabulary["answers"]),
                         ("chars", "sequence", ["früh", "spät am Abend"]))
        result = self.predict(self.run_folder, self.folder / "valid.txt")
        self.assertEqual(result.stdout.splitlines(), [label for _, label in lines])
        self.assertEqual(result.stderr, f"100.00 % of {len(lines)} lines with a target exact\n")

    def test_the_answers_are_those_of_the_lesson_in_python(self):
        draw = random.Random(3)
        text = "".join(f"{' '.join(draw.choice('abc') for _ in range(draw.randint(1, 12)))}\t{draw.choice('xyz')}\n" for _ in range(300))
        self.train(text, text, "--steps", 20)
        model = lesson.EncoderModel(json.loads((self.run_folder / "config.json").read_text())).eval()
        model.load_state_dict(load_file(self.run_folder / "model.safetensors"))
        vocabulary = json.loads((self.run_folder / "vocabulary.json").read_text())
        expected = []
        for line in text.splitlines():
            ids = torch.tensor([[vocabulary["tokens"].index(token) for token in line.split("\t")[0].split()]])
            expected.append(vocabulary["answers"][model(ids).argmax(-1).item()])
        self.assertGreater(len(set(expected)), 1)
        self.assertEqual(self.predict(self.run_folder, self.folder / "train.txt").stdout.splitlines(), expected)

    def test_targets_are_compared_answer_by_answer(self):
        """Of characters, of which small ones have a space for an answer."""
        draw = random.Random(4)
        words = ["".join(draw.choice("ABab") for _ in range(draw.randint(2, 6))) for _ in range(200)]
        text = "".join(f"{word}\t{''.join('X' if letter.isupper() else ' ' for letter in word)}\n" for word in words)
        self.train(text, text, "--chars", "--steps", 100)
        exact = self.predict(self.run_folder, input="Aab\tX  \nabA\t  X\naaa\t   \n")
        self.assertEqual((exact.stdout, exact.stderr),
                         ("X  \n  X\n   \n", "100.00 % of 3 lines with a target exact\n"))
        targets = ("X", "  X", " X ", "X   ", "X ", "X  ", "XX  ", "Y  ", "")
        wrong = self.predict(self.run_folder, input="".join(f"Aab\t{target}\n" for target in targets))
        self.assertEqual(wrong.stderr, "12.50 % of 8 lines with a target exact\n")

    def test_a_header_is_suspected_and_skipped(self):
        header, lines = "sentence\tlabel\n", "good film\tpos\nbad film\tneg\nfine\tpos\n"
        train, valid = self.write("train.txt", header + lines), self.write("valid.txt", header + lines)
        call = ("--train", train, "--valid", valid, *SMALL, "--steps", 2, "--out")
        plain, skipped = self.run_apps(((*call, self.folder / "0"), (*call, self.folder / "1", "--skip-header")))
        self.assertIn(f'note: {train}:1: no other line has the answer "label"; if line 1 is a header, --skip-header ',
                      plain.stderr)
        self.assertIn("3 answers", plain.stderr)
        self.assertNotIn("note: ", skipped.stderr)
        self.assertIn(": 3 examples of up to 2 tokens, 5 different ones, 2 answers", skipped.stderr)
        self.assertTrue(json.loads((self.folder / "1" / "run.json").read_text())["skip-header"])
        answers = self.predict(self.folder / "1", valid, "--skip-header")
        self.assertEqual(len(answers.stdout.splitlines()), 3)
        self.assertRegex(answers.stderr, r"^[\d.]+ % of 3 lines with a target exact\n$")
        again = self.run_app("--resume", self.folder / "1")
        self.assertEqual(again.stdout, skipped.stdout)
        self.check_error(1, "--skip-header is true, the checkpoint has unset", "--resume", self.folder / "0",
                         "--skip-header")

    def test_endings_blanks_and_unknown_words(self):
        train = "\ufeffa b\tx y\r\r\n\r\n b  a \ty x\n   \nb\tx\r\na\ty"
        result = self.train(train.encode(), "a c\tx z\nb b\tx x\n", "--steps", 5)
        self.assertIn(": 4 examples of up to 2 tokens, 3 different ones, 2 answers, one for each token", result.stderr)
        self.assertIn("valid.txt has 1 tokens that the training file never has", result.stderr)
        self.assertIn("valid.txt has 1 answers, which count as wrong, that the training file never has", result.stderr)
        self.assertIn("(not in the training file)", result.stdout)
        answers = self.predict(self.run_folder, input="\ufeffa b\r\r\n\nnever seen\n  \na").stdout
        self.assertEqual([len(line.split()) for line in answers.split("\n")], [2, 0, 2, 0, 1, 0])

    def test_wrong_lines_are_named(self):
        good = "a b\tx\nb a\ty\n"
        cases = (
            ("a b\tx\na b x\n", good, (), "train.txt:2: no TAB between input and target"),
            (good, "a b\tx\n\na\tb\tc\n", (), "valid.txt:3: 2 TABs"),
            ("a b\tx\n\tx\n", good, (), "train.txt:2: the input has no tokens"),
            ("a b\tx\na b\t \n", good, (), "train.txt:2: the target has no tokens"),
            ("a b\tx y\na b c\tx y\n", good, (), "train.txt:2: the target has 2 tokens for 3 of the input"),
            ("a b\tx y\n", good, (), "valid.txt:1: the target has 1 token for 2 of the input"),
            ("a b\tx\na \xff\ty\n".encode("latin-1"), good, (), "train.txt:2: not UTF-8 at byte 3"),
            ("a b\tx\n", good, (), "train.txt"), ("", good, (), "train.txt"), (good, "\n\n", (), "valid.txt"),
            (good, "a b\tz\n", (), "valid.txt: none of its answers is in "),
            ("a\tx\rb\ty\n", good, (), "train.txt:1: a carriage return in the line"),
            (good, good + "a " * 16385 + "\tx\n", (), "valid.txt:3: the input has 16385 tokens, more than 16384"),
            (good, good, ("--answers", "token"), "train.txt:1: the target has 1 token for 2 of the input"))
        calls = []
        for number, (train, valid, options, message) in enumerate(cases):
            (self.folder / str(number)).mkdir()
            train, valid = self.write(f"{number}/train.txt", train), self.write(f"{number}/valid.txt", valid)
            calls.append((1, message, ("--train", train, "--valid", valid, *options, "--out",
                                       self.folder / str(number) / "run")))
        self.check_errors(*calls)
        self.assertEqual(list(self.folder.glob("*/run")), [])
        train = self.write("train.txt", good)
        cases = ((("--train", train), "--train goes with --valid"), (("--valid", train), "--valid goes with --train"),
                 (("--chars",), "--chars goes with --train"), (("--skip-header",), "--skip-header goes with --train"),
                 (("--train", train, "--valid", train, "--task", "copy"), "--task does not go with --train"),
                 (("--train", train, "--valid", self.folder), "is a folder"),
                 (("--train", self.folder / "none", "--valid", train), "no such file"),
                 (("--train", train, "--valid", train, "--max-positions", 1),
                  f"--max-positions 1 is less than the longest sequence, 2 ({train}:1 with 2 tokens, "),
                 (("--train", train, "--valid", train, "--d-model", 80000),
                  f"; the longest lines are {train}:1 with 2 tokens, {train}:1 with 2 tokens"))
        self.check_errors(*((1, message, arguments) for arguments, message in cases))

    def test_predict_says_what_is_wrong(self):
        self.train("a b\tx\nb a\ty\n", "a b\tx\n", "--steps", 4)
        lines = self.predict(self.run_folder, input="a b\nb a b\na\n", code=1)
        self.assertEqual(len(lines.stdout.splitlines()), 1)
        self.assertEqual(lines.stderr, "predict: stdin:2: 3 tokens; the model has positions for 2\n")
        bad = self.predict(self.run_folder, self.write("bad.txt", b"a\n\xff\n"), code=1)
        self.assertEqual(len(bad.stdout.splitlines()), 1)
        self.assertRegex(bad.stderr, r"bad.txt:2: not UTF-8 at byte 1")
        bad = self.predict(self.run_folder, self.write("bad.txt", b"a\tx\na\t\xff\n"), code=1)
        self.assertRegex(bad.stderr, r"bad.txt:2: not UTF-8 at byte 3 of the line")
        for text, message in (("a\nb\tx\ty\n", "stdin:2: 2 TABs, one stands between input and target"),
                              ("a\nb\ra\n", "stdin:2: a carriage return in the line")):
            self.assertIn(message, self.predict(self.run_folder, input=text, code=1).stderr)
        with open("/dev/full", "w") as full:
            result = subprocess.run([PREDICT, self.run_folder], input="a b\n", stdout=full, stderr=subprocess.PIPE,
                                    text=True)
        self.assertEqual((result.returncode, result.stderr), (1,
                                                              "predict: cannot write to stdout: No space left on device\n"))
        for arguments, code, message in (((), 2, "model"), ((self.folder / "none",), 1, "no such folder"),
                                         ((self.folder,), 1, "holds no checkpoint"),
                                         ((self.run_folder, self.folder / "none"), 1, "no such file"),
                                         ((self.run_folder, "--threads", "0x2"), 2, "0x2 is not a whole number"),
                                         ((self.run_folder, "--device", "cuda:7"), 1, "no CUDA device")):
            if "cuda:7" in arguments and torch.cuda.is_available():
                continue
            result = self.predict(*arguments, code=code, input="")
            self.assertEqual(len(result.stderr.splitlines()), 1)
            self.assertIn(message, result.stderr)
        vocabulary = self.run_folder / "vocabulary.json"
        text = vocabulary.read_text()
        vocabulary.write_text(text[:len(text) // 2])
        self.assertIn("vocabulary.json", self.predict(self.run_folder, code=1, input="").stderr)
        vocabulary.write_text(text.replace('"b"', '"b", "c"'))
        self.assertIn("vocabulary.json is not that of the model", self.predict(self.run_folder, code=1,
                                                                               input="").stderr)

    def test_a_task_is_answered_and_a_run_that_is_not_over_too(self):
        train = self.run_app("--task", "brackets", *SMALL, "--steps", 4, "--stop-after", 2, "--out", self.run_folder)
        self.assertEqual(train.returncode, 0, train.stderr)
        result = self.predict(self.run_folder, input="( [ ] )\n")
        self.assertIn(result.stdout, ("0\n", "1\n"))
        self.assertRegex(result.stderr, "^note: the run in .* is not over; this is .*checkpoints/step-2\n$")
        self.assertEqual(self.predict(self.run_folder / "checkpoints" / "step-2", input="( [ ] )\n").stdout,
                         result.stdout)
        unknown = self.predict(self.run_folder, input="( x )\n", code=1)
        self.assertIn('stdin:1: the token "x" is not in the vocabulary', unknown.stderr)

    def test_who_asks_line_by_line_is_answered_line_by_line(self):
        self.train("a b\tx\nb a\ty\n", "a b\tx\n", "--steps", 4)
        with subprocess.Popen([PREDICT, self.run_folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as process:
            # The beginning of the next line does not hold an answer back.
            for text, lines in (("a b\n", 1), ("a b\nb", 1), (" a\n", 1), ("a\nb\na", 2), ("\n", 1)):
                process.stdin.write(text)
                process.stdin.flush()
                for _ in range(lines):
                    self.assertIn(process.stdout.readline(), ("x\n", "y\n"))
            process.stdin.close()

    def test_the_digits_of_scikit_learn(self):
        """64 grey levels and one label, with the README's flags but for the target, which is reached sooner."""
        from sklearn.datasets import load_digits
        digits = load_digits()
        lines = [" ".join(str(int(grey)) for grey in image) + f"\t{label}\n"
                 for image, label in zip(digits.data, digits.target)]
        train = self.write("train.txt", "".join(line for number, line in enumerate(lines) if number % 5))
        valid = self.write("valid.txt", "".join(lines[::5]))
        result = self.run_app("--train", train, "--valid", valid, "--threads", 1, "--d-model", 32, "--heads", 4,
                              "--layers", 3, "--dropout", 0.1, "--embedding-dropout", 0.3, "--weight-decay", 0.1,
                              "--steps", 4000, "--target", 90, "--eval-every", 100)
        self.assertGreaterEqual(float(re.search(r"([\d.]+) % of 360 unseen", result.stdout)[1]), 90)


if __name__ == "__main__":
    PREDICT = sys.argv.pop(2)
    app.main(Text)
