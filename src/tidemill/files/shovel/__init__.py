"""From one queue to another: by handing segments over, or by copying."""
