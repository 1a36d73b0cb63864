"""Fakes that keep the promises of the real thing: a disk that can lose power, a clock moved by hand.

They pass the same tests as what they stand for, and users of the package may build their own tests on them.
This room may import any other; none imports it.
"""
