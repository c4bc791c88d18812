//! Tables of aligned columns that fit a width: flexible columns shrink, no line is ever longer.

use unicode_width::UnicodeWidthStr;

use super::elide::elide_all;
use super::style::{Look, clean, shorten, wrap};

/// Columns below which a remark has one line, shortened.
const REMARK_LEAST: usize = 30;
/// Lines that a remark takes, about, before its middle is left out.
const REMARK_LINES: usize = 2;

/// Which side a column's text leans to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Left-aligned, for text.
    Left,
    /// Right-aligned, for numbers.
    Right,
}

#[derive(Clone, Debug)]
struct Column {
    title: String,
    align: Align,
    /// Flexible columns give up width down to this; others keep what they need.
    least: Option<usize>,
}

/// A table under construction.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
    gap: usize,
}

#[derive(Clone, Debug)]
enum Row {
    Cells(Vec<String>),
    /// Lines of their own under a row, indented: what must stay, and what may be shortened where it takes more than a few lines.
    Remark(String, String),
}

impl Row {
    fn cells(&self) -> Option<&Vec<String>> {
        match self {
            Row::Cells(cells) => Some(cells),
            Row::Remark(..) => None,
        }
    }
}

impl Default for Table {
    fn default() -> Table {
        Table { columns: Vec::new(), rows: Vec::new(), gap: 2 }
    }
}

impl Table {
    /// A table without columns.
    #[must_use]
    pub fn new() -> Table {
        Table::default()
    }

    /// One space between columns in place of two: for tables with many narrow columns.
    #[must_use]
    pub fn dense(mut self) -> Table {
        self.gap = 1;
        self
    }

    /// Adds a column of fixed need.
    #[must_use]
    pub fn column(mut self, title: &str, align: Align) -> Table {
        self.columns.push(Column { title: title.to_owned(), align, least: None });
        self
    }

    /// Adds a left-aligned column that may shrink to `least` columns.
    #[must_use]
    pub fn flexible(mut self, title: &str, least: usize) -> Table {
        self.columns.push(Column { title: title.to_owned(), align: Align::Left, least: Some(least) });
        self
    }

    /// Adds a row, one cell per column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| clean(&cell)).collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "one cell per column");
        self.rows.push(Row::Cells(cells));
    }

    /// Adds lines under the last row, mostly one. `lead` (where the row's object comes from) is shortened only where it alone does not fit.
    pub fn remark(&mut self, lead: &str, rest: &str) {
        self.rows.push(Row::Remark(clean(lead), clean(rest)));
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, heading first, each with a line feed.
    #[must_use]
    pub fn render(&self, look: Look, indent: usize) -> String {
        let widths = self.widths(look.width.saturating_sub(indent));
        let mut text = String::new();
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.clone()).collect();
        let line = self.line(&titles, &widths, indent);
        text.push_str(&look.heading(&line));
        text.push('\n');
        let mut columns = self.elided(&widths);
        for row in &self.rows {
            match row {
                Row::Cells(_) => {
                    let cells: Vec<String> =
                        columns.iter_mut().map(|column| column.next().unwrap_or_default()).collect();
                    text.push_str(&self.line(&cells, &widths, indent));
                }
                Row::Remark(lead, rest) => {
                    let inset = indent + widths.first().copied().unwrap_or(0) + self.gap;
                    let lines = remark_lines(lead, rest, look.width.saturating_sub(inset));
                    let lines = lines.iter().map(|line| look.faint(&format!("{}{line}", " ".repeat(inset))));
                    text.push_str(&lines.collect::<Vec<_>>().join("\n"));
                }
            }
            text.push('\n');
        }
        text
    }

    /// The cells of each column in its width; different ones stay different.
    fn elided(&self, widths: &[usize]) -> Vec<std::vec::IntoIter<String>> {
        let cells: Vec<&Vec<String>> = self.rows.iter().filter_map(Row::cells).collect();
        let column = |(column, &width): (usize, &usize)| {
            let texts: Vec<&str> = cells.iter().map(|cells| cells.get(column).map_or("", String::as_str)).collect();
            elide_all(&texts, width).into_iter()
        };
        widths.iter().enumerate().map(column).collect()
    }

    fn widths(&self, room: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| column.title.width()).collect();
        for row in &self.rows {
            let Row::Cells(cells) = row else { continue };
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.width());
            }
        }
        let gaps = self.gap * self.columns.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > room {
            let widest = (0..widths.len())
                .filter(|&i| self.columns[i].least.is_some_and(|least| widths[i] > least))
                .max_by_key(|&i| widths[i]);
            let Some(widest) = widest else { break };
            widths[widest] -= 1;
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize], indent: usize) -> String {
        let mut line = " ".repeat(indent);
        for (index, (cell, &width)) in cells.iter().zip(widths).enumerate() {
            if index > 0 {
                line.push_str(&" ".repeat(self.gap));
            }
            let cell = shorten(cell, width);
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            match self.columns[index].align {
                Align::Left => line.extend([cell.as_str(), &padding]),
                Align::Right => line.extend([padding.as_str(), &cell]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// A remark in lines of at most `room` columns. Words left out of its middle would be those that matter:
/// "10 l…ed by 4 threads".
fn remark_lines(lead: &str, rest: &str, room: usize) -> Vec<String> {
    if lead.width() + rest.width() <= room {
        return vec![format!("{lead}{rest}")];
    }
    let lead = shorten(lead, room);
    if room < REMARK_LEAST {
        let rest = shorten(rest, room.saturating_sub(lead.width()));
        return vec![format!("{lead}{rest}")];
    }
    let rest = shorten(rest, REMARK_LINES * room);
    wrap(&format!("{lead}{rest}"), room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new().flexible("object", 8).column("share", Align::Right);
        table.row(["`block`".to_owned(), "81.2 ± 0.7 %".to_owned()]);
        table.row(["std::vector<std::pair<unsigned long, double>>".to_owned(), "4.1 %".to_owned()]);
        table
    }

    #[test]
    fn columns_line_up_and_nothing_is_wider_than_allowed() {
        for width in [24, 40, 100] {
            let text = table().render(Look { width, colour: false }, 2);
            assert!(text.lines().all(|line| line.width() <= width), "{width}:\n{text}");
        }
        let wide = table().render(Look::default(), 0);
        let ends: Vec<usize> = wide.lines().skip(1).map(UnicodeWidthStr::width).collect();
        assert_eq!(ends[0], ends[1], "right-aligned columns end together:\n{wide}");
    }

    #[test]
    fn a_remark_keeps_the_place_whatever_the_width() {
        let mut table = Table::new().flexible("object", 8);
        table.row(["u".to_owned()]);
        table.remark("a_rather_long_file_name.f90:1234", " in a_function_with_a_long_name(), heap, 3 instances");
        for width in [44, 60, 100] {
            let text = table.render(Look { width, colour: false }, 2);
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                words.contains("a_rather_long_file_name.f90:1234 in a_function_with_a_long_name(), heap, 3 "),
                "{text}"
            );
            assert!(text.lines().all(|line| line.width() <= width), "{text}");
        }
        let narrow = table.render(Look { width: 30, colour: false }, 2);
        assert!(narrow.lines().count() == 3 && narrow.lines().all(|line| line.width() <= 30), "{narrow}");
    }

    #[test]
    fn rows_whose_names_differ_in_the_middle_stay_apart() {
        let mut table = Table::new().flexible("object", 8).column("share", Align::Right);
        for axis in ["x", "y", "z"] {
            table.row([format!("simulation_state_{axis}_of_all_the_particles"), "1.0 %".to_owned()]);
        }
        let text = table.render(Look { width: 30, colour: false }, 2);
        let rows: std::collections::BTreeSet<&str> = text.lines().skip(1).collect();
        assert_eq!(rows.len(), 3, "{text}");
    }

    #[test]
    fn line_breaks_in_cells_do_not_break_the_table() {
        let mut table = Table::new().flexible("name", 4);
        table.row(["a\nb".to_owned()]);
        assert_eq!(table.render(Look::default(), 0).lines().count(), 2);
    }
}
