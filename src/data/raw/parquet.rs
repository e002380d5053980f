//! The rows of a table.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};

use super::super::file::{self, wrong};
use super::{Piece, jsonl, pair};
use crate::error::{Result, panic_message};

/// The rows of a file, each as a JSON object with the columns that are read of it.
pub(super) struct Rows {
    path: Arc<Path>,
    rows: RowIter<'static>,
    row: u64,
    /// The bytes that a row has in the file, on average.
    bytes: u64,
}

impl Rows {
    /// Opens a file for one of its columns, and those that change its meaning.
    ///
    /// # Errors
    /// When it is no Parquet, has no such column, or has other bytes than text in it.
    pub(super) fn open(path: Arc<Path>, column: &str) -> Result<Self> {
        let (file, bytes) = file::open(&path)?;
        let broken = |error: ParquetError| wrong(&path, format!("is no Parquet that can be read: {error}"));
        let reader = SerializedFileReader::new(file).map_err(broken)?;
        let metadata = reader.metadata().file_metadata();
        let count = u64::try_from(metadata.num_rows()).unwrap_or_default();
        let columns = read(metadata.schema_descr(), column).map_err(|problem| wrong(&path, problem))?;
        let rows = RowIter::from_file_into(Box::new(reader));
        let rows = rows.project(Some(columns)).map_err(broken)?;
        Ok(Self { path, rows, row: 0, bytes: bytes / count.max(1) })
    }

    /// The next row.
    pub(super) fn read(&mut self) -> Result<Option<Piece>> {
        // The crate takes some files at their word, and panics where they lie.
        let row = catch_unwind(AssertUnwindSafe(|| self.rows.next()));
        self.row += 1;
        let cause = match row {
            Ok(Some(Ok(row))) => {
                return Ok(Some(Piece {
                    path: Arc::clone(&self.path),
                    line: self.row,
                    text: row.to_json_value().to_string(),
                    ends: true,
                    bytes: self.bytes,
                }));
            }
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => error.to_string(),
            Err(panic) => panic_message(panic.as_ref()),
        };
        Err(wrong(&self.path, format!("is damaged at row {}: {cause}", self.row)))
    }
}

/// The schema with the columns that are read, as of a line of JSON.
fn read(schema: &SchemaDescriptor, column: &str) -> std::result::Result<Type, String> {
    let fields = schema.root_schema().get_fields();
    let names: Vec<String> = fields.iter().map(|field| field.name().to_owned()).collect();
    let is_named = names.iter().any(|name| name == column);
    if !is_named && pair::end(&names, column)?.is_none() {
        return Err(format!("has no column \"{column}\" (data.field), only \"{}\"", names.join("\", \"")));
    }
    let is_document = |name: &str| name == column || pair::is_part(name);
    let is_binary = |leaf: &&Arc<ColumnDescriptor>| {
        let is_text = leaf.converted_type() == ConvertedType::UTF8
            || leaf.logical_type_ref() == Some(&LogicalType::String);
        leaf.physical_type() == Physical::BYTE_ARRAY && !is_text
    };
    let name = |leaf: &Arc<ColumnDescriptor>| leaf.path().parts().first().cloned().unwrap_or_default();
    let mut binary = schema.columns().iter().filter(is_binary).map(name);
    if let Some(column) = binary.find(|name| is_document(name)) {
        return Err(format!(
            "has bytes in the column \"{column}\" that are not marked as text: write the column as strings"
        ));
    }
    let read = fields.iter().filter(|field| jsonl::is_read(field.name(), column)).map(Arc::clone);
    let read = Type::group_type_builder(schema.root_schema().name()).with_fields(read.collect());
    read.build().map_err(|error| format!("is no Parquet that can be read: {error}"))
}
