//! The one style of all pictures and pages: fonts, inks and grounds. Each has a light form and a dark one,
//! which the reader's system chooses.

/// The fonts of all text.
pub const FONT: &str = "Helvetica,Arial,sans-serif";

/// The rules for what is drawn in SVG.
pub const LIGHT: &str = "\
text{fill:#24292f;font-size:12px}.h{font-size:16px;font-weight:bold}.s{fill:#424a53;font-size:13px}\
.k{fill:#57606a;font-size:11px}.e{text-anchor:end}.m{text-anchor:middle}.n{fill:#24292f}.l{fill:#fff}\
path{fill:none}.o{fill:#fff}.i{fill:#e9ecef}.z{stroke:#e9ecef}\
.g{stroke:#8c959f;stroke-width:.6;stroke-opacity:.45}.x{stroke:#57606a}\
.a{stroke:#0b2545}.d{stroke:#7a1f00;stroke-dasharray:3 1.5}";

/// What differs on a dark ground.
pub const DARK: &str = "\
text{fill:#e6edf3}.s{fill:#c9d1d9}.k{fill:#a5afba}.n{fill:#24292f}.l{fill:#fff}\
.o{fill:#161b22}.i{fill:#30363d}.z{stroke:#30363d}.x{stroke:#a5afba}.a{stroke:#a5d0ff}.d{stroke:#ffb38a}";

/// The rules for lines, bands and bars of charts. Each colour can be told from both grounds: its contrast
/// with white and with the dark ground is at least 3.
pub const CHART: &str = "\
.line{stroke-width:1.6;stroke-linejoin:round}.dash{stroke-dasharray:5 3}.band{fill-opacity:.25;stroke:none}\
.s0{stroke:#2f7fc4}.s1{stroke:#cf5a26}.s2{stroke:#1d8f68}.s3{stroke:#a763c9}.s5{stroke:#a87a00}\
.s6{stroke:#d6437f}.s7{stroke:#0b8fa3}.raw{opacity:.3}\
.f0{fill:#2f7fc4}.f1{fill:#cf5a26}.f2{fill:#1d8f68}.f3{fill:#a763c9}.f4{fill:#7d8590}\
.f5{fill:#a87a00}.f6{fill:#d6437f}.f7{fill:#0b8fa3}";

/// Rules that hold where the reader's system is dark.
pub fn where_dark(rules: &str) -> String {
    format!("@media(prefers-color-scheme:dark){{{rules}}}")
}
