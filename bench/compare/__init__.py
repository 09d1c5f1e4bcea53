"""heed and its peers on the same cells, in alternating rounds: ./dev compare"""
