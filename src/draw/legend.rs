//! The legend: what the colours and lines of a picture mean.

use std::collections::BTreeMap;

use super::colours::Colour;
use super::page::{MARGIN, Page, RIGHT, WIDTH, px, text_width};
use super::picture::Picture;
use super::rows::{Digits, stages};
use super::scale::Frame;
use crate::schedule::Pass;

const SWATCH: f64 = 12.0;

/// One line under the first heading.
pub(super) fn draw(page: &mut Page, picture: &Picture<'_>, frame: &Frame) {
    let shades = shades(picture);
    page.down(10.0);
    let x = colours(page, picture, &shades);
    notes(page, picture, frame, (x, &shades));
    page.down(12.0);
}

/// The most stages of a rank that have each kind of pass: each stage has a shade.
fn shades(picture: &Picture<'_>) -> BTreeMap<Pass, usize> {
    let mut shades: BTreeMap<Pass, usize> = BTreeMap::new();
    for row in picture.timelines().flat_map(|timeline| &timeline.ranks) {
        let count = stages(row).len();
        for pass in row {
            let most = shades.entry(pass.pass).or_default();
            *most = count.max(*most);
        }
    }
    shades
}

/// The colours and lines with their names. Returns where the next text starts.
fn colours(page: &mut Page, picture: &Picture<'_>, shades: &BTreeMap<Pass, usize>) -> f64 {
    let mut x = MARGIN;
    for (&pass, &count) in shades {
        for chunk in 0..count {
            swatch(page, x, &filled(Colour::pass(pass, chunk, count)));
            x += SWATCH;
        }
        x = words(page, x, pass.name());
    }
    swatch(page, x, "class=\"i\"");
    x = words(page, x + SWATCH, "idle");
    if picture.timelines().any(|timeline| !timeline.reductions.is_empty()) {
        swatch(page, x, &filled(Colour::REDUCTION));
        x = words(page, x + SWATCH, "reduction");
    }
    if picture.timelines().any(|timeline| !timeline.shard_waits.is_empty()) {
        swatch(page, x, &filled(Colour::SHARD_WAIT));
        x = words(page, x + SWATCH, "waits for a shard");
    }
    let mut copies = picture.timelines().flat_map(|timeline| &timeline.copies);
    if copies.any(|copy| copy.end > copy.start) {
        for (colour, name) in [(Colour::OUT, "to the host"), (Colour::BACK, "back")] {
            swatch(page, x, &filled(colour));
            x = words(page, x + SWATCH, name);
        }
    }
    if picture.transfers {
        for (class, name) in [("a", "activation"), ("d", "gradient")] {
            page.path(class, &format!("M{} {}h22", px(x), px(page.y() - 4.0)));
            x = words(page, x + 22.0, name);
        }
    }
    x
}

/// What numbers and shades mean, where there are any.
fn notes(
    page: &mut Page,
    picture: &Picture<'_>,
    frame: &Frame,
    (mut x, shades): (f64, &BTreeMap<Pass, usize>),
) {
    let numbered = picture.timelines().any(|timeline| {
        let digits = Digits::of(frame, timeline);
        timeline.ranks.iter().flatten().any(|pass| digits.fit(frame, pass))
    });
    let shaded = shades.values().any(|count| *count > 1);
    for (holds, note) in
        [(numbered, "numbers: micro-batches"), (shaded, "shades: a rank's stages, the first dark")]
    {
        if holds && x + text_width(note, 13.0) > WIDTH - RIGHT {
            page.down(19.0);
            x = MARGIN;
        }
        if holds {
            page.text(x, "s", note);
            x += text_width(note, 13.0) + 18.0;
        }
    }
}

fn filled(colour: Colour) -> String {
    format!("fill=\"{}\"", colour.hex())
}

fn swatch(page: &mut Page, x: f64, attribute: &str) {
    page.add(&format!(
        "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" {attribute}/>",
        px(x),
        px(page.y() - 10.0)
    ));
}

/// Writes a name and returns where the next one starts.
fn words(page: &mut Page, x: f64, name: &str) -> f64 {
    page.text(x + 5.0, "s", name);
    x + text_width(name, 13.0) + 18.0
}
