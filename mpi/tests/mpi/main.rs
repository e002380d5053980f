//! Processes that `mpirun` starts, and that MPI connects: what every fabric must do, and what only they do.

/// Calls a macro for this fabric, which takes wires in any order.
macro_rules! fabrics {
    ($which:ident $suite:ident) => {
        $suite!(mpi);
    };
}

mod far;
#[path = "../../../tests/fabric/given.rs"]
mod given;
mod joined;
#[path = "../../../tests/fabric/suite.rs"]
mod suite;
#[path = "../../../tests/fabric/unordered.rs"]
mod unordered;

use far::mpi;
use given::Number;
