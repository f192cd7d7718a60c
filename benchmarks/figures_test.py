#!/usr/bin/env python3
import unittest

import figures

CEILINGS = {"maddubs_all_threads": 200.0, "dpbusd_512_all_threads": 400.0, "pmaddwd_all_threads": 100.0,
            "fma_all_threads": 50.0, "memory_read_all_threads": 20.0}


class PairRow(unittest.TestCase):
    def test_the_ratio_is_the_median_of_pairs_not_the_ratio_of_medians(self):
        row = figures.pair_row("x", [10, 20, 90], "tokens/s", "them", [5, 20, 10])
        self.assertEqual((row["value"], row["peer_value"]), (20, 10))
        self.assertEqual((row["ratio"], row["ratio_min"], row["ratio_max"]), (2, 1, 9))

    def test_larger_is_always_better(self):
        row = figures.pair_row("x", [0.5], "s", "them", [2], larger_is_better=False)
        self.assertEqual(row["ratio"], 4)

    def test_pairs_are_complete(self):
        with self.assertRaises(ValueError):
            figures.pair_row("x", [1, 2], "s", "them", [1])

    def test_without_a_peer_there_is_no_ratio(self):
        self.assertNotIn("ratio", figures.pair_row("x", [1], "s"))


class Shares(unittest.TestCase):
    def test_each_kind_of_product_has_its_own_ceiling(self):
        macs = {"Q4_1": 400e9, "Q8_0": 100e9, "attention": 50e9}
        self.assertAlmostEqual(figures.compute_share(macs, 6, CEILINGS), (1 + 1 + 1) / 6)

    def test_the_fastest_instruction_of_the_machine_counts(self):
        self.assertEqual(figures.rate_of("Q4_0", CEILINGS), 400)
        slow = {k: v for k, v in CEILINGS.items() if not k.startswith("dpbusd")}
        self.assertEqual(figures.rate_of("Q4_0", slow), 200)

    def test_a_tier_is_measured_by_its_own_instructions(self):
        self.assertEqual(figures.rate_of("Q4_0", figures.ceilings_of("cpu-avx2", CEILINGS)), 200)
        self.assertEqual(figures.rate_of("Q4_0", figures.ceilings_of("cpu-avx512", CEILINGS)), 400)
        self.assertIsNone(figures.rate_of("F16", figures.ceilings_of("cpu-scalar", CEILINGS)))
        self.assertEqual(figures.ceilings_of("cpu", CEILINGS), CEILINGS)

    def test_an_unknown_ceiling_gives_no_share(self):
        self.assertIsNone(figures.compute_share({"IQ1": 1}, 1, CEILINGS))
        self.assertIsNone(figures.compute_share({"Q4_1": 1}, 1, {}))
        self.assertIsNone(figures.bandwidth_share(1, 1, {}))

    def test_bytes_over_time(self):
        self.assertAlmostEqual(figures.bandwidth_share(8e9, 0.5, CEILINGS), 0.8)


class Judge(unittest.TestCase):
    def judged(self, **row):
        return figures.judge(row, 2.0, by_compute=True, by_bandwidth=True)

    def test_by_ratio_first(self):
        row = self.judged(ratio=2.0, compute_share=0.9)
        self.assertEqual((row["pass"], row["passed_by"], row["bound"]), (True, "ratio", 2.0))

    def test_by_the_machines_rate(self):
        self.assertEqual(self.judged(ratio=1.0, compute_share=0.5)["passed_by"], "multiply-add rate")
        self.assertEqual(self.judged(ratio=1.0, bandwidth_share=0.8)["passed_by"], "read bandwidth")

    def test_below_everything(self):
        row = self.judged(ratio=1.99, compute_share=0.49, bandwidth_share=0.79)
        self.assertFalse(row["pass"])
        self.assertNotIn("passed_by", row)

    def test_a_share_that_the_row_may_not_pass_by(self):
        self.assertFalse(figures.judge({"ratio": 1, "compute_share": 1, "bandwidth_share": 1}, 2)["pass"])

    def test_a_missing_peer_does_not_pass(self):
        self.assertFalse(self.judged(compute_share=1.0, bandwidth_share=1.0)["pass"])

    def test_an_unknown_share_does_not_pass(self):
        self.assertFalse(self.judged(ratio=1.0, compute_share=None, bandwidth_share=None)["pass"])


class Steps(unittest.TestCase):
    def test_median_and_nearest_rank(self):
        self.assertEqual(figures.median_step([0, 1, 2, 3, 13]), (1, 10))
        self.assertEqual(figures.percentile(list(range(1, 101)), 99), 99)
        self.assertEqual(figures.percentile([7], 99), 7)


if __name__ == "__main__":
    unittest.main()
