//! What a list is asked for: in the query of a GET, or in the body of a POST to `.search`, where it leaves no trace in
//! logs.
use kernel::fault::Result;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{answer::Shape, filter::Filter};

/// No page is longer.
pub const MOST: i64 = 200;
const DEFAULT: i64 = 100;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Query {
    pub filter: Option<String>,
    /// From 1.
    pub start_index: Option<i64>,
    /// 200 at the most.
    #[schemars(extend("default" = 100))]
    pub count: Option<i64>,
    pub sort_by: Option<String>,
    /// `ascending` or `descending`.
    pub sort_order: Option<String>,
    /// Names with commas between them.
    pub attributes: Option<String>,
    /// Names with commas between them.
    pub excluded_attributes: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    filter: Option<String>,
    /// From 1.
    start_index: Option<i64>,
    /// 200 at the most.
    count: Option<i64>,
    sort_by: Option<String>,
    /// `ascending` or `descending`.
    sort_order: Option<String>,
    attributes: Option<Vec<String>>,
    excluded_attributes: Option<Vec<String>>,
}

/// A list that was asked for.
#[derive(Debug)]
pub struct Asked {
    pub filter: Option<Filter>,
    /// From 1.
    pub start: i64,
    pub count: i64,
    pub sort_by: Option<String>,
    pub is_descending: bool,
    pub shape: Shape,
}

impl Asked {
    fn new(
        filter: Option<&str>,
        start: Option<i64>,
        count: Option<i64>,
        by: Option<String>,
        way: Option<&str>,
        shape: Shape,
    ) -> Result<Self> {
        let filter = filter.filter(|text| !text.trim().is_empty()).map(Filter::parse).transpose()?;
        Ok(Self {
            filter,
            // Past any list, and not so far that adding to it would overflow.
            start: start.unwrap_or(1).clamp(1, i64::from(i32::MAX)),
            count: count.unwrap_or(DEFAULT).clamp(0, MOST),
            sort_by: by.filter(|by| !by.is_empty()),
            is_descending: way.is_some_and(|way| way.eq_ignore_ascii_case("descending")),
            shape,
        })
    }
}

impl Query {
    pub fn asked(self) -> Result<Asked> {
        let shape = Shape::of(self.attributes.as_deref(), self.excluded_attributes.as_deref());
        let (filter, way) = (self.filter.as_deref(), self.sort_order.as_deref());
        Asked::new(filter, self.start_index, self.count, self.sort_by, way, shape)
    }
}

impl Request {
    pub fn asked(self) -> Result<Asked> {
        let only = self.attributes.unwrap_or_default();
        let shape = Shape { only, without: self.excluded_attributes.unwrap_or_default() };
        let (filter, way) = (self.filter.as_deref(), self.sort_order.as_deref());
        Asked::new(filter, self.start_index, self.count, self.sort_by, way, shape)
    }
}
