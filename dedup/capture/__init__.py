"""URLs out of network traffic: frames (`pcapfile`) → segments (`packets`) → flows (`tcpflows`) → requests (`httprequests`)."""
