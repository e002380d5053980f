//! What CPU this is.

/// Its name and its SIMD instructions, as Linux tells them.
pub(crate) fn line() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of = |key: &str| {
        let line = all.lines().find(|line| line.starts_with(key));
        let value = line.and_then(|line| line.split_once(": "));
        value.map_or("unknown", |(_, value)| value)
    };
    let wanted =
        |flag: &&str| ["avx", "amx", "fma", "sse4", "f16c"].iter().any(|start| flag.starts_with(start));
    let flags: Vec<&str> = of("flags").split(' ').filter(wanted).collect();
    format!("{}, family {}, model {}: {}", of("model name"), of("cpu family"), of("model\t"), flags.join(" "))
}
