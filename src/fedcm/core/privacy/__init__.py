"""What makes a mean of reports differentially private: clipping to a grid, exact noise, and the budget of a run."""
