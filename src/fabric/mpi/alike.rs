//! Checks that all processes belong to one run. All know what each says, so all find the same.

use serde::{Deserialize, Serialize};

use super::library::Mpi;
use crate::error::{FabricError, Result};
use crate::fabric::processes::{binary, other_build, other_program};

/// What a process says of itself.
#[derive(Serialize, Deserialize)]
struct Hello {
    /// Its number and the number of processes, as its environment says.
    place: [u32; 2],
    /// The version of the engine.
    version: String,
    /// A hash of the program's file.
    binary: [u8; 32],
    /// What must be equal in all processes.
    program: String,
}

/// Compares all processes. `place`: this process's number and the number of processes, as its environment
/// says. `program`: what must be equal in all.
///
/// # Errors
/// The first difference, the same in all processes.
pub(super) fn compare(mpi: &Mpi, place: [u32; 2], program: &str) -> Result<()> {
    let hello = Hello {
        place,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        binary: *binary(),
        program: program.to_owned(),
    };
    let mine = postcard::to_stdvec(&hello).expect("memory takes what is written");
    let mut first = None;
    for (process, hello) in (0..).zip(mpi.gather(&mine)) {
        let hello: Hello = postcard::from_bytes(&hello).map_err(|error| {
            FabricError::unreadable_part(format_args!("process {process}"), "joining by MPI", error)
        })?;
        let is = [process, mpi.processes()];
        if hello.place != is {
            let said = hello.place;
            return Err(FabricError::refused(format!(
                "two answers to where a process is: its environment says process {} of {}, MPI says process \
                 {} of {}; start it with the launcher of the MPI that it was built with, and unset RANK and \
                 WORLD_SIZE",
                said[0], said[1], is[0], is[1]
            ))
            .into());
        }
        let first = first.get_or_insert_with(|| Hello {
            place: hello.place,
            version: hello.version.clone(),
            binary: hello.binary,
            program: hello.program.clone(),
        });
        if let Some(cause) = objection(first, process, &hello) {
            return Err(FabricError::refused(cause).into());
        }
    }
    Ok(())
}

fn objection(first: &Hello, process: u32, other: &Hello) -> Option<String> {
    let who = format!("process {process}");
    if first.binary != other.binary || first.version != other.version {
        return Some(other_build(&who, [&first.version, &other.version]));
    }
    other_program(&who, &first.program, &other.program)
}
