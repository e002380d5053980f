//! The date that a template may ask for.

use std::fmt::Write;
use std::str::FromStr;

use chrono::{Local, NaiveDate, NaiveDateTime, NaiveTime};
use serde::{Deserialize, Serialize};

/// A date and a time of the day, as a clock on the wall shows them. It is read from texts such as
/// `2026-03-07` and `2026-03-07T09:05:04`. The error for another text is what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Date(NaiveDateTime);

impl Date {
    /// What the clock of this machine shows.
    pub fn now() -> Self {
        Self(Local::now().naive_local())
    }

    /// It in this form of `strftime`, such as `%d %b %Y`. `None` if there is no such form.
    pub(super) fn written(self, form: &str) -> Option<String> {
        let mut text = String::new();
        write!(text, "{}", self.0.format(form)).ok()?;
        Some(text)
    }
}

impl TryFrom<String> for Date {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Date> for String {
    fn from(date: Date) -> Self {
        date.0.format("%Y-%m-%dT%H:%M:%S").to_string()
    }
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let day = || NaiveDate::from_str(text).map(|day| day.and_time(NaiveTime::MIN));
        let read = NaiveDateTime::from_str(text).or_else(|_| day());
        read.map(Self).map_err(|_| "a date such as \"2026-03-07\"".to_owned())
    }
}
