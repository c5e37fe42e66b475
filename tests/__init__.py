"""The test suite; the folders mirror the packages of rlx_edge."""
