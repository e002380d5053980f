// Matrices in shared memory, as descriptors describe them.
#pragma once
#include "hopper.h"

/// The 16 columns of k of some rows of a matrix, row by row. The rows are those of the left matrix, or the
/// columns of the right one: the dimension M or N. `along_rows`: neighbours in memory are those of M or N, not
/// of k. Fails the launch if the descriptor cannot be right.
std::vector<uint16_t> read_matrix(uint64_t descriptor, const char *what, bool along_rows, unsigned first,
                                  unsigned rows);
