//! How long a block and a wire take from one process to another by MPI: what `benches/fabric.rs` measures by
//! sockets. `cargo bench -p pipewright-mpi --features mpi --bench fabric_by_mpi`

#[path = "../../benches/support/between.rs"]
mod between;

use std::process::Command;
use std::time::Duration;

use pipewright::fabric::Membership;
use pipewright_mpi::MpiMembership;

/// The variable that tells a process that it is one of two.
const PART: &str = "PIPEWRIGHT_BENCH_MPI";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::var(PART).is_ok() {
        let membership = MpiMembership {
            process: std::env::var("OMPI_COMM_WORLD_RANK")?.parse()?,
            processes: 2,
            deadline: Duration::from_secs(60),
            silence: Membership::SILENCE,
        };
        return between::measure("mpi", membership.join("a bench")?);
    }
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--allow-run-as-root", "--oversubscribe", "-n", "2"]);
    match mpirun.arg(std::env::current_exe()?).env(PART, "one").status()?.success() {
        true => Ok(()),
        false => Err("a process failed".into()),
    }
}
