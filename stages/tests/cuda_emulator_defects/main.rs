//! Each rule of the emulator finds a defect that was put here: small programs that a GPU may run without a
//! word. Beside each is a program that differs only in being right.

#![allow(unsafe_code)]

#[path = "../cuda_emulator/product.rs"]
#[allow(dead_code, reason = "it is shared with another test")]
mod product;

mod addresses;
mod contracts;
#[path = "../common/driver.rs"]
mod driver;
mod failing;
mod hopper;
mod machine;
mod races;
mod transfers;
