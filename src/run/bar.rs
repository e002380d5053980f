//! The bar of a run on a terminal, with the feature `bar`.

#[cfg(feature = "bar")]
pub(super) use shown::Bar;

#[cfg(feature = "bar")]
mod shown {
    use std::io::{self, IsTerminal};

    use indicatif::{ProgressBar, ProgressStyle};

    const TEMPLATE: &str = "{bar:24} {pos}/{len}  {msg}  {eta} left";

    /// A bar of steps. A clone is the same bar.
    #[derive(Clone, Debug)]
    pub(in crate::run) struct Bar(ProgressBar);

    impl Bar {
        /// A bar if standard error is a terminal: `done` of `steps` are done.
        pub(in crate::run) fn on_terminal(done: u64, steps: u64) -> Option<Self> {
            io::stderr().is_terminal().then(|| {
                let style = ProgressStyle::with_template(TEMPLATE).expect("the template is fixed");
                let bar = ProgressBar::new(steps).with_style(style).with_position(done);
                bar.reset_eta();
                Self(bar)
            })
        }

        pub(in crate::run) fn show(&self, done: u64, message: String) {
            self.0.set_message(message);
            self.0.set_position(done);
        }

        /// Prints a line above the bar.
        pub(in crate::run) fn print(&self, line: &str) {
            self.0.println(line);
        }

        /// Hides the bar while `print` prints.
        pub(in crate::run) fn suspend(&self, print: impl FnOnce()) {
            self.0.suspend(print);
        }

        pub(in crate::run) fn clear(&self) {
            self.0.finish_and_clear();
        }
    }
}

/// Without the feature there is none.
#[cfg(not(feature = "bar"))]
#[derive(Clone, Debug)]
pub(super) enum Bar {}

#[cfg(not(feature = "bar"))]
impl Bar {
    pub(super) fn on_terminal(_: u64, _: u64) -> Option<Self> {
        None
    }

    pub(super) fn show(&self, _: u64, _: String) {
        match *self {}
    }

    pub(super) fn print(&self, _: &str) {
        match *self {}
    }

    pub(super) fn suspend(&self, _: impl FnOnce()) {
        match *self {}
    }

    pub(super) fn clear(&self) {
        match *self {}
    }
}
