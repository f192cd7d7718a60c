#!/usr/bin/env python3
"""What the compiler made of the instruction tiers: that each has the instructions it is named for and
none that its processors lack. For the AVX-VNNI tier, which few machines run, this and dot_test stand in
for a run."""
import os
import re
import subprocess
import sys
import unittest


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def path_of(library):
    for folder, _, files in os.walk(os.environ["TEST_SRCDIR"], followlinks=True):
        for name in files:
            if name.endswith(f"lib{library}.so"):
                return os.path.join(folder, name)
    raise FileNotFoundError(library)


def disassembly(library):
    """(bytes, mnemonic, operands) of every instruction of a library of kernels."""
    text = output("objdump", "-d", "-w", path_of(library))
    return re.findall(r"^\s*[0-9a-f]+:\t((?:[0-9a-f]{2} )+)\s*(?:\{\w+\} )?(\S+) *(.*)$", text, re.M)


def named(instructions, mnemonic):
    return [i for i in instructions if i[1] == mnemonic]


DOTS = ("vpdpbusd", "vpdpwssd")
# What only AVX-512 has: 512-bit registers, registers from 16 on, mask registers, the EVEX prefix.
AVX512 = re.compile(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])\b|%k[0-7]\b")


class ObjectCodeTest(unittest.TestCase):
    def assert_vex_only(self, library):
        instructions = disassembly(library)
        self.assertGreater(len(instructions), 1000)
        evex = [i for i in instructions if AVX512.search(i[2]) or (i[1][0] == "v" and i[0].startswith("62"))]
        self.assertEqual(evex, [])

    def test_the_avx2_tier_needs_no_more(self):
        self.assert_vex_only("avx2")
        for dot in DOTS:
            self.assertEqual(named(disassembly("avx2"), dot), [])

    def test_the_avx_vnni_tier_has_the_dot_products_in_vex_encoding(self):
        self.assert_vex_only("avxvnni")
        for dot, opcode in zip(DOTS, ("50", "52")):
            found = named(disassembly("avxvnni"), dot)
            self.assertGreater(len(found), 100)
            for code, _, operands in found:
                self.assertIn("%ymm", operands)
                # Three-byte VEX, map 0F38, 256 bits, prefix 66.
                self.assertRegex(code, rf"^c4 [0-9a-f]2 [0-9a-f][5d] {opcode} ", operands)

    def test_the_avx_vnni_tier_has_as_many_as_its_stand_in_that_runs(self):
        for dot in DOTS:
            self.assertEqual(len(named(disassembly("avxvnni"), dot)), len(named(disassembly("evex"), dot)))

    def test_the_avx512_tier_has_the_dot_products_at_512_bits(self):
        for dot in DOTS:
            found = named(disassembly("avx512"), dot)
            self.assertGreater(len(found), 100)
            for _, _, operands in found:
                self.assertIn("%zmm", operands)

    def test_no_tier_has_code_that_the_linker_could_give_to_others(self):
        for library in ("avx2", "avx512", "avxvnni"):
            names = output("nm", path_of(library))
            self.assertRegex(names, r" T .*Linear")
            self.assertEqual(re.findall(r" [WVu] .*", names), [])

    def test_accumulators_of_the_avx512_tier_stay_in_registers(self):
        spills = [i for i in disassembly("avx512") if re.search(r"%zmm\d+,[^,]*\(%r[sb]p\)", i[2])]
        self.assertEqual(spills, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
