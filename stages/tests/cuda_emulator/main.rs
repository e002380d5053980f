//! The emulated driver, NVRTC and cuBLASLt. Skipped on a machine with a GPU.

#![allow(unsafe_code)]

mod calls;
#[path = "../common/driver.rs"]
mod driver;
mod hopper;
mod product;
mod products;
