"""A network on what comes from a camera, a microphone or a recording: sources, inputs, terminal, page."""
