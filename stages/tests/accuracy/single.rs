//! The tests in `f32`.

use pipewright_stages::Place;

#[path = "all.rs"]
mod all;

fn place() -> Place {
    Place::default()
}
