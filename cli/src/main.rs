//! The `pipewright` command.

fn main() -> std::process::ExitCode {
    pipewright_cli::main()
}
