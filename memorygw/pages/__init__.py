"""Pages for people: what is remembered about me, and the playground. They work without JavaScript where they can."""
