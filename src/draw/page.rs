//! The SVG document: text is added from top to bottom.

use std::fmt::Write;

/// The width of a picture.
pub(super) const WIDTH: f64 = 960.0;
/// The distance from the left edge to titles.
pub(super) const MARGIN: f64 = 16.0;
/// The distance from the left edge to the plots.
pub(super) const LEFT: f64 = 68.0;
/// The distance from the plots to the right edge.
pub(super) const RIGHT: f64 = 20.0;

/// The style of every picture. It has its own light ground, so that it is readable on dark pages too.
const STYLE: &str = "\
text{fill:#24292f;font-size:12px}.h{font-size:16px;font-weight:bold}.s{fill:#424a53;font-size:13px}\
.k{fill:#57606a;font-size:11px}.e{text-anchor:end}.m{text-anchor:middle}.l{fill:#fff}\
path{fill:none}.z{stroke:#e9ecef}.g{stroke:#8c959f;stroke-width:.6;stroke-opacity:.45}.x{stroke:#57606a}\
.a{stroke:#0b2545}.d{stroke:#7a1f00;stroke-dasharray:3 1.5}";

/// A page being written.
#[derive(Debug)]
pub(super) struct Page {
    body: String,
    styles: String,
    y: f64,
}

impl Page {
    pub(super) fn new() -> Self {
        Self {
            body: String::new(),
            styles: STYLE.to_owned(),
            y: 0.0,
        }
    }

    /// How far down the page is written.
    pub(super) fn y(&self) -> f64 {
        self.y
    }

    /// Leaves vertical space.
    pub(super) fn down(&mut self, by: f64) {
        self.y += by;
    }

    /// Adds a style rule for a class.
    pub(super) fn style(&mut self, rule: &str) {
        if !self.styles.contains(rule) {
            self.styles += rule;
        }
    }

    /// Adds elements without change.
    pub(super) fn add(&mut self, elements: &str) {
        self.body += elements;
        self.body.push('\n');
    }

    /// Adds a path, unless it is empty.
    pub(super) fn path(&mut self, class: &str, data: &str) {
        if !data.is_empty() {
            self.add(&format!("<path class=\"{class}\" d=\"{data}\"/>"));
        }
    }

    /// Adds a line of text at the current height.
    pub(super) fn text(&mut self, x: f64, class: &str, text: &str) {
        self.text_at(x, self.y, class, text);
    }

    /// Adds a line of text at any place.
    pub(super) fn text_at(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let (x, y, text) = (px(x), px(y), escaped(text));
        self.add(&format!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>"
        ));
    }

    /// The document.
    pub(super) fn finish(self, title: &str) -> String {
        let (width, height) = (px(WIDTH), px((self.y + 14.0).ceil()));
        let mut document = String::new();
        write!(
            document,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"Helvetica,Arial,sans-serif\">\n\
             <title>{}</title>\n<style>{}</style>\n\
             <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#fff\"/>\n{}</svg>\n",
            escaped(title),
            self.styles,
            self.body
        )
        .expect("a string takes all text");
        document
    }
}

/// The approximate width of a text at this size.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.6
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A number of pixels in as few characters as needed.
pub(super) fn px(pixels: f64) -> String {
    let text = format!("{:.2}", pixels + 0.0);
    let short = shorten(&text);
    match short.strip_prefix("0.") {
        Some(decimals) => format!(".{decimals}"),
        None => short.to_owned(),
    }
}

/// A number without needless zeros at its end.
pub(super) fn shorten(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}
