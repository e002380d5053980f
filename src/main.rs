//! The `pipewright` command.

fn main() -> std::process::ExitCode {
    pipewright::cli::main()
}
