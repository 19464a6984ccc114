"""Tests of reading bills and holding them against what was traced."""
