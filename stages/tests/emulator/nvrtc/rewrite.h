#pragma once
#include <string>

/// Makes text of CUDA C++, preprocessed but for CUDA's own words, into C++ for the host, with a table of its kernels.
std::string rewrite(const std::string &source);
