//! The `pipewright` command.

fn main() {}
