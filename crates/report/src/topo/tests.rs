//! Every built-in model and captured tree is drawn; golden files hold some of them to the letter.
