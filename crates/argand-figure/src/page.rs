//! A page of its own around a fragment.

/// A page that loads nothing but what the policy of its content allows.
pub(crate) fn page(title: &str, policy: &str, body: &str) -> String {
    // The policy keeps browsers from loading anything else, whatever the page contains.
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; {policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>html {{ background: #fff }} body {{ margin: 0 }} @media screen and (prefers-color-scheme: dark) {{ html {{ background: #14171d }} \
         }}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}
