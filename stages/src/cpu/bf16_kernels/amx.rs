//! Products by AMX: `tdpbf16ps` adds the product of two tiles to a third, 8,192 multiply-adds in one
//! instruction.
//!
//! Stable Rust has no functions for these instructions, so they are written in assembly. Linux gives a
//! process the registers only if it asks for them, and each thread says how large its tiles are.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::cell::Cell;

use half::bf16;

use super::left::{Left, Order};
use super::panels::{TILE, Tile};

/// The depth of a tile of operands: 64 bytes.
const DEPTH: usize = 32;

/// How tiles are laid out, as `ldtilecfg` reads it.
#[repr(C, align(64))]
struct Layout {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    /// The bytes of a row of each tile.
    bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight tiles have 16 rows of 64 bytes.
static WHOLE: Layout = Layout {
    palette: 1,
    start: 0,
    reserved: [0; 14],
    bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

thread_local! {
    static IS_LAID_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Whether this CPU has the instructions, and the system lets this process use them.
pub(crate) fn is_here() -> bool {
    has_instructions() && is_allowed()
}

/// Asks the CPU for `amx-tile` and `amx-bf16`.
#[allow(unused_unsafe, reason = "newer compilers call these functions safe")]
fn has_instructions() -> bool {
    const LEAF: u32 = 7;
    const BOTH: u32 = 1 << 24 | 1 << 22;
    // SAFETY: every CPU of this architecture has the instruction `cpuid`.
    let edx = unsafe {
        match __cpuid(0).eax >= LEAF {
            true => __cpuid_count(LEAF, 0).edx,
            false => 0,
        }
    };
    edx & BOTH == BOTH
}

/// Asks the system for the tiles' registers, for all threads of this process.
fn is_allowed() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XFEATURE_XTILEDATA: i64 = 18;
    if cfg!(not(target_os = "linux")) {
        return false;
    }
    let mut result = ARCH_PRCTL;
    // SAFETY: the call reads and writes no memory of this process. It changes the two registers that are
    // named as lost.
    unsafe {
        asm!(
            "syscall",
            inout("rax") result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Says how large this thread's tiles are, once.
fn lay_out() {
    if !IS_LAID_OUT.replace(true) {
        // SAFETY: the CPU has the instruction, the system allows it, and `WHOLE` is a valid layout.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &WHOLE, options(nostack, readonly)) };
    }
}

/// Computes a tile of sums, which start with the contents that `start` gives to the first four registers.
/// Meanwhile it prefetches the panel, four kilobytes ahead: the second-level cache alone is too slow.
macro_rules! multiply {
    ($sums:ident, $left:ident, $panel:ident, $($start:literal),*) => {{
        let Order::Rows(stride) = $left.order else {
            unreachable!("this way says that it needs rows")
        };
        assert!(
            $left.depth > 0 && $left.depth.is_multiple_of(DEPTH),
            "tiles are whole"
        );
        assert_eq!($panel.len(), TILE * $left.depth, "a panel is as deep as the rows");
        let last = (TILE - 1) * stride;
        assert!($left.numbers.len() >= last + $left.depth, "rows are whole");
        lay_out();
        let upper = $sums.as_mut_ptr();
        // SAFETY: this way is only chosen where the CPU has the instructions and the system allows them, and
        // the thread has laid out its tiles. In each round, `tmm4` and `tmm5` are read from 32 rows, and the
        // last of these rows ends within the slice. `tmm6` and `tmm7` are read from 16 rows of the panel, of
        // 128 bytes each. There are as many rounds as tiles in the depth. Sums are 32 rows of 128 bytes. What
        // is prefetched may lie anywhere.
        unsafe {
            asm!(
                $($start,)*
                "2:",
                "tileloadd tmm4, [{first} + {row}*1]",
                "tileloadd tmm6, [{panel} + {wide}*1]",
                ".irp at, 4096, 4160, 4224, 4288, 4352, 4416, 4480, 4544",
                "prefetcht0 [{panel} + \\at]",
                ".endr",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{panel} + {wide}*1 + 64]",
                ".irp at, 4608, 4672, 4736, 4800, 4864, 4928, 4992, 5056",
                "prefetcht0 [{panel} + \\at]",
                ".endr",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{second} + {row}*1]",
                ".irp at, 5120, 5184, 5248, 5312, 5376, 5440, 5504, 5568",
                "prefetcht0 [{panel} + \\at]",
                ".endr",
                "tdpbf16ps tmm2, tmm5, tmm6",
                ".irp at, 5632, 5696, 5760, 5824, 5888, 5952, 6016, 6080",
                "prefetcht0 [{panel} + \\at]",
                ".endr",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {first}, 64",
                "add {second}, 64",
                "add {panel}, 2048",
                "dec {rounds}",
                "jnz 2b",
                "tilestored [{sums} + {wide}*1], tmm0",
                "tilestored [{sums} + {wide}*1 + 64], tmm1",
                "tilestored [{lower} + {wide}*1], tmm2",
                "tilestored [{lower} + {wide}*1 + 64], tmm3",
                sums = in(reg) upper,
                lower = in(reg) upper.add(TILE / 2),
                wide = in(reg) size_of::<[f32; TILE]>(),
                first = inout(reg) $left.numbers.as_ptr() => _,
                second = inout(reg) $left.numbers.as_ptr().add(TILE / 2 * stride) => _,
                row = in(reg) stride * size_of::<bf16>(),
                panel = inout(reg) $panel.as_ptr() => _,
                rounds = inout(reg) $left.depth / DEPTH => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }};
}

/// As [`super::Way::set`]. Only where [`is_here`].
pub(crate) fn set(sums: &mut Tile, left: Left<'_>, panel: &[bf16]) {
    multiply!(sums, left, panel, "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3");
}

/// As [`super::Way::add`]. Only where [`is_here`].
pub(crate) fn add(sums: &mut Tile, left: Left<'_>, panel: &[bf16]) {
    multiply!(
        sums,
        left,
        panel,
        "tileloadd tmm0, [{sums} + {wide}*1]",
        "tileloadd tmm1, [{sums} + {wide}*1 + 64]",
        "tileloadd tmm2, [{lower} + {wide}*1]",
        "tileloadd tmm3, [{lower} + {wide}*1 + 64]"
    );
}
