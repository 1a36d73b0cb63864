"""Fakes that keep the promises of the real thing: a disk that can lose power, a clock moved by hand.

They pass the same tests as the real ones, and users of the package may build their own tests on them.
This package may import any other; none imports it.
"""
