//! HTML around texts. A text is escaped exactly once, here.

/// A text, for an element or for a value in double quotes.
pub(super) fn text(plain: &str) -> String {
    plain.chars().fold(String::with_capacity(plain.len()), |mut escaped, character| {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
        escaped
    })
}

/// An element with a plain text in it.
pub(super) fn element(name: &str, plain: &str) -> String {
    format!("<{name}>{}</{name}>\n", text(plain))
}

/// A list of what is markup already.
pub(super) fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: String = items.into_iter().map(|item| format!("<li>{item}</li>\n")).collect();
    format!("<ul>\n{items}</ul>\n")
}

/// A cell; numbers stand at the right.
pub(super) fn cell(plain: &str) -> String {
    let is_number =
        plain.starts_with(|first: char| first.is_ascii_digit() || first == '-' && plain.len() > 1);
    let class = if is_number && plain.len() <= 24 { " class=\"number\"" } else { "" };
    format!("<td{class}>{}</td>", text(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(text("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(element("p", "1 < 2"), "<p>1 &lt; 2</p>\n");
        assert_eq!(cell("12.5 (3)"), "<td class=\"number\">12.5 (3)</td>");
        assert_eq!(cell("<b>"), "<td>&lt;b&gt;</td>");
    }
}
