//! What differs between systems is in one module, `src/system/`. All other code is the same for all of them.

use crate::{read, root, rust_files};

/// The module, and what is outside of it.
const ALLOWED: &[(&str, &str)] = &[
    ("src/system/", "what each system does in its own way"),
    ("src/fabric/sockets/mod.rs", "says which file is `near`"),
    ("src/fabric/sockets/near/", "connections and memory inside of a machine, which only Linux has"),
    ("candle/src/threads.rs", "this package knows `stages/` only"),
    ("stages/src/cpu/bf16_kernels/amx.rs", "asks Linux for the registers of the instructions"),
];

/// What asks for a system, or belongs to one.
const OF_A_SYSTEM: [&str; 11] = [
    "(unix",
    "cfg(windows",
    "cfg!(windows",
    "not(windows",
    "target_os",
    "target_family",
    "std::os::",
    "libc::",
    "rustix::",
    "signal_hook::",
    "same_file::",
];

#[test]
fn what_differs_between_systems_is_in_one_module() {
    let (mut faults, mut used) = (Vec::new(), vec![false; ALLOWED.len()]);
    for folder in ["src", "cli/src", "schedule/src", "stages/src", "candle/src"] {
        for file in rust_files(&root().join(folder)) {
            let text = read(&file);
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let name = file.strip_prefix(root()).expect("it is there").display().to_string();
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                if !OF_A_SYSTEM.iter().any(|words| line.contains(words)) {
                    continue;
                }
                match ALLOWED.iter().position(|(place, _)| name.starts_with(place)) {
                    Some(place) => used[place] = true,
                    None => faults.push(format!("{name}: {}", line.trim())),
                }
            }
        }
    }
    assert!(faults.is_empty(), "let `system` do this, or say in ALLOWED why not\n{}", faults.join("\n"));
    let unused: Vec<_> = ALLOWED.iter().zip(used).filter(|(_, used)| !used).collect();
    assert!(unused.is_empty(), "nothing there differs any more: {unused:?}");
}
