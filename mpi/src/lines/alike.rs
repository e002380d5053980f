//! Checks that all processes belong to one run. All know what each says, so all find the same.

use pipewright::Result;
use pipewright::error::FabricError;
use pipewright::fabric::line;

use super::library::Mpi;

/// Compares all processes. `place`: this process's number and the number of processes, as its environment
/// says. `program`: what must be equal in all.
///
/// # Errors
/// The first difference, the same in all processes.
pub(super) fn compare(mpi: &Mpi, place: [u32; 2], program: &str) -> Result<()> {
    let place = place.map(u32::to_le_bytes).concat();
    let all = mpi.gather(&[place, line::introduction(program)].concat());
    let mut introductions = Vec::new();
    for (process, said) in (0..).zip(&all) {
        let (place, introduction) = said.split_first_chunk::<8>().expect("each has said its place");
        let is = [process, mpi.processes()];
        let said = place.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number));
        let said: Vec<u32> = said.collect();
        if said != is {
            return Err(FabricError::refused(format!(
                "two answers to where a process is: its environment says process {} of {}, MPI says process \
                 {} of {}; start it with the launcher of the MPI that it was built with, and unset RANK and \
                 WORLD_SIZE",
                said[0], said[1], is[0], is[1]
            ))
            .into());
        }
        introductions.push(introduction);
    }
    line::compare("joining by MPI", &introductions)
}
