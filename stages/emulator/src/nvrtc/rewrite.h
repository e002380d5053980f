#pragma once
#include <string>

/// Turns preprocessed CUDA C++ into C++ for the host, with a table of its kernels.
std::string rewrite(const std::string &source);
