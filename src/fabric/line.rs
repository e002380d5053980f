//! How to write lines: what carries bytes between two processes, such as sockets, MPI, or RDMA.
//!
//! Frames, calls of all processes and farewells are the engine's. A fabric between processes only moves
//! bytes, in order, between each two of them. The package `pipewright-mpi` is written by this module, and so
//! are the engine's own sockets. To write another one:
//!
//! 1. Connect the processes. See by [`introduction`] and [`compare`] that all are alike.
//! 2. Implement [`Line`], the sending end of a line to one process. Four of its functions are needed. Three
//!    are to send and to end: [`Line::send`], [`Line::limit`] and [`Line::close`]. [`Line::say`] carries the
//!    words of [`Aside`]: by them processes ask each other what they do.
//! 3. Give the bytes that come to [`FromProcess`], one for each other process. [`Lines::start`] is given
//!    them.
//! 4. Give [`World::by_lines`](super::World::by_lines) the lines. The rest is as with sockets.
//!
//! Two threads stand for two processes here, and channels for their network:
//!
//! ```
//! use std::sync::mpsc::{Receiver, Sender, channel};
//! use std::{io, sync::Arc, thread, time::Duration};
//!
//! use pipewright::fabric::line::{Aside, Line, Lines};
//! use pipewright::fabric::{self, World};
//! use pipewright::{Result, mesh::Mesh, stages::Tensor};
//!
//! /// A line to the other one. A message without bytes ends it.
//! struct Channel(Sender<Vec<u8>>);
//!
//! impl Line for Channel {
//!     fn send(&self, bytes: &[u8]) -> io::Result<usize> {
//!         let sent = self.0.send(bytes.to_vec());
//!         sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
//!     }
//!     fn close(&self) {
//!         let _ = self.0.send(Vec::new());
//!     }
//!     fn limit(&self, _: Duration) -> io::Result<()> {
//!         Ok(()) // sending never waits
//!     }
//!     fn say(&self, _: &[u8]) {} // nobody is told what this one does
//! }
//!
//! fn join(process: usize, to: Sender<Vec<u8>>, from: Receiver<Vec<u8>>) -> World {
//!     let mut lines: [Option<Arc<dyn Line>>; 2] = [None, None];
//!     lines[1 - process] = Some(Arc::new(Channel(to)));
//!     let lines = Lines {
//!         lines: lines.into(),
//!         start: Box::new(move |mut all, threads| {
//!             let mut other = all[1 - process].take().expect("it has a line");
//!             threads.push(thread::spawn(move || {
//!                 from.iter().take_while(|bytes| !bytes.is_empty()).for_each(|bytes| other.take(&bytes));
//!                 other.end();
//!             }));
//!             Ok(())
//!         }),
//!         feed: None,
//!         local: vec![0, 1],
//!         aside: Arc::new(Aside::new(2)),
//!     };
//!     World::by_lines(process as u32, lines, Duration::from_secs(60))
//! }
//!
//! /// Connects the rank of this process, and tells all its process's number.
//! fn run(world: World) -> Result<Vec<Vec<u8>>> {
//!     let mesh = Mesh::new([1, 2, 1], 2, &[])?;
//!     let (_ends, all) = fabric::ends::<Tensor>(world, &mesh, 2, 100)?;
//!     all.share("greetings", Ok(vec![all.process() as u8]))
//! }
//!
//! let ((to_1, from_0), (to_0, from_1)) = (channel(), channel());
//! let other = thread::spawn(move || run(join(1, to_0, from_0)));
//! assert_eq!(run(join(0, to_1, from_1))?, [[0], [1]]);
//! assert_eq!(other.join().expect("no panic")?, [[0], [1]]);
//! # Ok::<(), pipewright::Error>(())
//! ```
//!
//! **Without copies.** A line with [`Line::posts`] is given the memory of large wires and blocks, as
//! [`Numbers`], and keeps it until they have gone. A line that knows how long the next message is asks
//! [`FromProcess::room`] for memory: for the numbers of a wire, that is where they stay.
//!
//! **Where nothing wakes a thread.** MPI has to be asked again and again whether something has come. A
//! [`Pause`] says how, and by a [`Feed`] a rank that waits does it itself.

pub use super::feed::Feed;
pub use super::pause::Pause;
pub use super::processes::{Aside, FromProcess, Line, Lines, Numbers, Start, compare, introduction};
