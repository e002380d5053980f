//! Values as JSON, as Python's `json.dumps` writes them: with a space behind each comma and colon.

use std::io::{self, Write};

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::given::object;

/// The filter `tojson` of transformers.
pub(super) fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let is_ascii: Option<bool> = options.get("ensure_ascii")?;
    let indent: Option<Value> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let sorts: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let indent = indent.filter(|indent| !indent.is_none()).map(indentation).transpose()?;
    let comma = if indent.is_some() { "," } else { ", " };
    let [comma, colon] = match separators.as_deref() {
        Some([comma, colon]) => [comma.clone(), colon.clone()],
        _ => [comma.to_owned(), ": ".to_owned()],
    };
    let python = Python { indent, comma, colon, is_ascii: is_ascii.unwrap_or(false), depth: 0, has: false };
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, python);
    let value = if sorts == Some(true) { sorted(value) } else { value.clone() };
    if value.is_undefined() {
        return Err(refused("what is undefined cannot be written as JSON"));
    }
    value.serialize(&mut serializer).map_err(|error| refused(&error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| refused(&error.to_string()))
}

fn refused(problem: &str) -> Error {
    Error::new(ErrorKind::BadSerialization, problem.to_owned())
}

/// A number of spaces, or a text.
fn indentation(indent: Value) -> Result<String, Error> {
    match (indent.as_str(), usize::try_from(indent.clone())) {
        (Some(text), _) => Ok(text.to_owned()),
        (None, Ok(count)) if count <= 64 => Ok(" ".repeat(count)),
        _ => Err(refused("an indent is a text, or 64 spaces at most")),
    }
}

/// The same value with the keys of all its objects in order.
fn sorted(value: &Value) -> Value {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter().into_iter().flatten().map(|one| sorted(&one)).collect::<Vec<_>>().into()
        }
        ValueKind::Map => {
            let pairs = value.as_object().and_then(|object| object.clone().try_iter_pairs());
            let mut pairs: Vec<_> = pairs.into_iter().flatten().collect();
            pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
            object(pairs.into_iter().map(|(key, one)| (key, sorted(&one))))
        }
        _ => value.clone(),
    }
}

/// How Python lays JSON out.
struct Python {
    /// What a line is indented by, for each level. Without it, all is one line.
    indent: Option<String>,
    comma: String,
    colon: String,
    is_ascii: bool,
    depth: usize,
    /// Whether the list or the object that ends has entries.
    has: bool,
}

impl Python {
    fn line<W: Write + ?Sized>(&self, to: &mut W) -> io::Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        write!(to, "\n{}", indent.repeat(self.depth))
    }

    fn begin<W: Write + ?Sized>(&mut self, to: &mut W, mark: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has = false;
        to.write_all(mark)
    }

    fn end<W: Write + ?Sized>(&mut self, to: &mut W, mark: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has {
            self.line(to)?;
        }
        to.write_all(mark)
    }

    fn next<W: Write + ?Sized>(&self, to: &mut W, is_first: bool) -> io::Result<()> {
        if !is_first {
            to.write_all(self.comma.as_bytes())?;
        }
        self.line(to)
    }
}

impl Formatter for Python {
    fn write_f64<W: Write + ?Sized>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        to.write_all(float(value).as_bytes())
    }

    fn write_string_fragment<W: Write + ?Sized>(&mut self, to: &mut W, text: &str) -> io::Result<()> {
        if !self.is_ascii {
            return to.write_all(text.as_bytes());
        }
        for unit in text.encode_utf16() {
            match u8::try_from(unit).ok().filter(|byte| (b' '..=b'~').contains(byte)) {
                Some(byte) => to.write_all(&[byte])?,
                None => write!(to, "\\u{unit:04x}")?,
            }
        }
        Ok(())
    }

    fn begin_array<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.begin(to, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.end(to, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, to: &mut W, is_first: bool) -> io::Result<()> {
        self.next(to, is_first)
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.has = true;
        Ok(())
    }

    fn begin_object<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.begin(to, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.end(to, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, to: &mut W, is_first: bool) -> io::Result<()> {
        self.next(to, is_first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(self.colon.as_bytes())
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.has = true;
        Ok(())
    }
}

/// A number as Python writes it: as Rust does, but with an exponent that has a sign and two digits at least.
fn float(value: f64) -> String {
    let plain = format!("{value:?}");
    let Some((digits, exponent)) = plain.split_once('e') else { return plain };
    let (sign, size) = exponent.strip_prefix('-').map_or(("+", exponent), |size| ("-", size));
    format!("{digits}e{sign}{size:0>2}")
}
