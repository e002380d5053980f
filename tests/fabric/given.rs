//! What the tests of all fabrics are given: a wire, ends, a pipeline.

use std::io::{self, Read, Write};

use pipewright::fabric::{Transport, WireFrame};
use pipewright::mesh::Mesh;

/// Fewer than the wires that are on the way at once in some of these tests.
pub(crate) const ROOM: usize = 100;

/// A wire that any fabric can carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number(pub(crate) u32);

impl WireFrame for Number {
    fn describe(&self, description: &mut Vec<u8>) {
        description.push(1);
    }

    fn bytes(&self) -> u64 {
        4
    }

    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&self.0.to_le_bytes())
    }

    fn read(description: &[u8], bytes: u64, from: &mut dyn Read) -> io::Result<Self> {
        assert_eq!((description, bytes), (&[1][..], 4));
        let mut bytes = [0; 4];
        from.read_exact(&mut bytes)?;
        Ok(Self(u32::from_le_bytes(bytes)))
    }
}

pub(crate) type Ends = Vec<Box<dyn Transport<Number> + Send>>;

/// A pipeline of this many ranks.
pub(crate) fn mesh(ranks: u32, processes: u32) -> Mesh {
    Mesh::new([1, ranks, 1], processes, &[]).expect("an even share")
}
